"""The media types that the service speaks."""

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
