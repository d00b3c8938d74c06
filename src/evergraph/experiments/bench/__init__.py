"""Many runs side by side: methods x datasets x settings x seeds, in processes of this machine."""
