"""One check on one subject: stored cases, drawing, shrinking, relevance, explanation."""
