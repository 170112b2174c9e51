//! Configuration, actions, the HTTP/JSON interface and metrics.
