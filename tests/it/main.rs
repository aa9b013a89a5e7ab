//! Tests that use the program as its user does.
