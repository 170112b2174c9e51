//! NVMe, NVMe over Fabrics and NVMe/TCP: bytes to values and back, without I/O.
