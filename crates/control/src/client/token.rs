//! The token that programs show to an interface on a TCP port.
//!
//! It is in the environment, because other users of the machine can read command lines: as itself,
//! or as the name of a file.

use crate::credentials::Token;
use anyhow::{Context as _, Result, bail};
use config::files;
use std::path::PathBuf;

/// The variable with the token itself.
const VARIABLE: &str = "SWITCHYARD_API_TOKEN";

/// The variable with the name of a file that has it.
const FILE_VARIABLE: &str = "SWITCHYARD_API_TOKEN_FILE";

/// The token of this process, if it was given one.
///
/// # Errors
/// A file that cannot be read, or a token that is none.
pub fn token() -> Result<Option<Token>> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (text, from) = match (set(VARIABLE), set(FILE_VARIABLE)) {
        (Some(_), Some(_)) => {
            bail!("{VARIABLE} and {FILE_VARIABLE} are both set; keep one of them")
        }
        (None, None) => return Ok(None),
        (Some(token), None) => (token.to_string_lossy().into_owned(), VARIABLE.to_owned()),
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            let text = files::read_regular(&path, Token::BYTES_MAX + 1);
            let from = path.display().to_string();
            (
                text.with_context(|| {
                    format!("{FILE_VARIABLE}: name a file with the token: {from}")
                })?,
                from,
            )
        }
    };
    let token = Token::new(text.trim_end()).with_context(|| from)?;
    Ok(Some(token))
}
