//! Keys, identities and authentication of NVMe over Fabrics, without I/O: TLS pre-shared keys
//! `[NVMe-TCP 1.1 §3.6.1]` and DH-HMAC-CHAP `[NVMe Base 2.1 §8.3.5.5]`.
