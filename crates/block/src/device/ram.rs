//! ram
