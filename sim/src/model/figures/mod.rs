//! The figures of the papers that need more cores than there are: what to run for each.
