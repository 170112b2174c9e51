//! Files of devices from the interface lie below the folders for them, whatever is exchanged between
//! the check of their paths and their opening.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::{Intercepted, Scratch};
use config::Action;
use config::schema::Device;
use config::{Format, parse};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use switchyard_control::{Control, DataPlane as _, Plane};
use target::{Limits, Target};

const MODEL: &str = "version = 1
[provenance]
device = \"a device of a test\"
[prices.mixed]
read_millitokens = 1000
write_millitokens = 10000
[prices.read_only]
read_millitokens = 1000
[[curve]]
tokens_per_second = 100000
p50_ns = 100000
p95_ns = 100000
p99_ns = 100000
p999_ns = 100000
";

/// Adds a device whose file `path` becomes a link to `outside` after it was checked.
fn add(folder: &Path, path: &Path, outside: &Path, device: &str) -> String {
    let text = format!("device_folders = [{folder:?}]\n[devices.d]\n{device}\n");
    let with = parse(&text, Format::Toml).unwrap();
    let device: Device = with.devices["d"].clone();
    let target = Target::new(Limits::default(), 1).unwrap();
    let (path, outside) = (path.to_owned(), outside.to_owned());
    let plane = Arc::new(Intercepted {
        plane: Arc::new(Plane::new(target, vec![0])),
        // It finds a link out of the folder in the place of the file that was checked.
        apply: move |plane: &Plane, action: &Action, folders: Option<&[PathBuf]>| {
            let _ = std::fs::remove_file(&path);
            symlink(&outside, &path).unwrap();
            plane.apply(action, folders)
        },
    });
    let file = parse(&format!("device_folders = [{folder:?}]"), Format::Toml).unwrap();
    let control = Control::start(&file, plane).unwrap();
    let name = "d".to_owned();
    let added = control.change(vec![Action::AddDevice { name, device }]);
    assert!(control.configuration().devices.is_empty());
    added.unwrap_err().to_string()
}

#[test]
fn a_link_that_is_put_in_the_place_of_a_checked_file_is_not_followed() {
    let scratch = Scratch::new("exchanged");
    let folder = scratch.0.join("folder");
    std::fs::create_dir(&folder).unwrap();
    let (path, outside) = (folder.join("disk"), scratch.0.join("outside"));
    std::fs::write(&outside, [7; 8192]).unwrap();
    std::fs::write(&path, [0; 8192]).unwrap();
    let device = format!("type = \"file\"\npath = {path:?}");
    let refused = add(&folder, &path, &outside, &device);
    assert!(refused.contains("symbolic link"), "{refused}");

    // One that is to be created is not created elsewhere.
    let nowhere = scratch.0.join("nowhere");
    let _ = std::fs::remove_file(&path);
    let device = format!("{device}\nsize = \"1M\"\ncreate = true");
    let refused = add(&folder, &path, &nowhere, &device);
    assert!(refused.contains("symbolic link"), "{refused}");
    assert!(!nowhere.exists());

    // Nor is a model read from elsewhere.
    std::fs::write(&outside, MODEL).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, MODEL).unwrap();
    let device = format!("type = \"ram\"\nsize = \"1M\"\nmodel = {path:?}");
    let refused = add(&folder, &path, &outside, &device);
    assert!(refused.contains("cannot be read"), "{refused}");
    assert_eq!(std::fs::read(&outside).unwrap(), MODEL.as_bytes());
}
