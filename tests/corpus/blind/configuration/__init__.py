"""About configuration: settings, windows, logs, further terms and validation."""
