//! Files that a person writes: configurations in TOML and JSON, and models of devices.

use config::{Configuration, DeviceModel};
use config::{Format, parse, validate};

/// Reads a configuration; what is accepted comes back the same from what is written of it. The
/// first byte of `input` chooses the language.
///
/// # Panics
/// If it does not, or if what was accepted is not valid.
pub fn configuration(input: &[u8]) {
    let Some((&first, text)) = input.split_first() else {
        return;
    };
    let format = if first & 1 == 0 {
        Format::Toml
    } else {
        Format::Json
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match parse(text, format) {
        Ok(configuration) => comes_back(&configuration),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A valid configuration is the same after it was written and read, in both languages.
///
/// # Panics
/// If it is not.
pub(crate) fn comes_back(configuration: &Configuration) {
    assert_eq!(validate(configuration), Ok(()), "what is accepted is valid");
    let toml = configuration.to_toml();
    assert_eq!(
        parse(&toml, Format::Toml).as_ref(),
        Ok(configuration),
        "{toml}"
    );
    let json = serde_json::to_string(configuration).expect("a configuration is JSON");
    assert_eq!(
        parse(&json, Format::Json).as_ref(),
        Ok(configuration),
        "{json}"
    );
}

/// Reads the model of a device; what is accepted comes back the same from what is written of it.
///
/// # Panics
/// If it does not.
pub fn device_model(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match DeviceModel::parse(text) {
        Ok(model) => {
            let written = model.to_toml();
            assert_eq!(DeviceModel::parse(&written), Ok(model), "{written}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
