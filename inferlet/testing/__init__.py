"""What users test their inferlets with."""
