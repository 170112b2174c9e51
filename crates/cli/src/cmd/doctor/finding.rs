//! A finding, and its forms.

use base::printable;
use serde::Serialize;
use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but slower or with less safety.
    Warn,
    /// Does not work.
    Fail,
    /// Cannot be read here.
    Unknown,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Its severity.
    pub status: Status,
    /// The fact.
    pub text: String,
    /// The command or change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(check: &'static str, status: Status, text: impl Into<String>) -> Self {
        Self {
            check,
            status,
            text: text.into(),
            remedy: None,
        }
    }

    /// A fact that is as it should be.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, text)
    }

    /// A fact that cannot be read, and why.
    pub fn unknown(check: &'static str, why: impl fmt::Display) -> Self {
        Self::new(check, Status::Unknown, why.to_string())
    }

    /// A fact that costs speed or safety, and the remedy.
    pub fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(check, Status::Warn, text)
        }
    }

    /// A fact that prevents service, and the remedy.
    pub fn fail(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(check, Status::Fail, text)
        }
    }
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Returns true if there is a failure.
    pub fn has_failures(&self) -> bool {
        self.0.iter().any(|it| it.status == Status::Fail)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.0.iter().enumerate() {
            let line_feed = if number > 0 { "\n" } else { "" };
            let status = match finding.status {
                Status::Ok => "OK",
                Status::Warn => "WARN",
                Status::Fail => "FAIL",
                Status::Unknown => "UNKNOWN",
            };
            let text = finding.text.replace('\n', "; ");
            write!(
                f,
                "{line_feed}{status:7} {}: {}",
                finding.check,
                printable(&text)
            )?;
            if let Some(remedy) = &finding.remedy {
                write!(f, "; remedy: {}", printable(remedy))?;
            }
        }
        Ok(())
    }
}
