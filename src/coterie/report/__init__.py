"""Tables, figures and pages that report runs."""
