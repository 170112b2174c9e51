//! The device contract, devices and layers, and the suite that each of them passes.
