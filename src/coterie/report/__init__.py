"""Tables, figures and pages about runs."""
