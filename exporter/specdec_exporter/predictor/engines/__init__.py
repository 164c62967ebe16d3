"""What is known of each inference engine: one data file for each, and the module that reads them."""
