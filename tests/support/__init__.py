"""What tests and the laboratory stand on: builders of data, servers, programs of the field."""
