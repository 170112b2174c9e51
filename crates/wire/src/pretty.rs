//! One line of text per PDU.
