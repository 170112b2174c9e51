//! Gives the shared library its name of version 1, and the compiler the version of the ABI.

fn main() {
    // The number changes with `SWITCHYARD_ABI_VERSION`: programs are bound to it when they are
    // linked.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libswitchyard.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
