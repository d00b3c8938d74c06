"""Tables, figures and one page about finished runs."""
