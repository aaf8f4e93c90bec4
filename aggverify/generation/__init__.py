"""What is drawn or listed: spaces, strategies (parent process only), enumeration, stored cases."""
