//! Errors as clients see them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::control::ChangeError;
use config::ConfigError;
use config::diff::{Fixed, FixedWhileRunning};
use config::{ApplyError, ApplyErrorKind};

/// The body of every response that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The fault.
    pub error: String,
    /// The remedy.
    pub what_to_do: String,
    /// Every problem by itself, where there may be more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<serde_json::Value>,
    /// Changes of the same request that came before the error, could not be undone and are in
    /// force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_force: Vec<serde_json::Value>,
}

/// An error on its way to a client.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    /// An error with this status.
    pub fn new(
        status: StatusCode,
        error: impl Into<String>,
        what_to_do: impl Into<String>,
    ) -> Self {
        Self {
            status,
            body: ErrorBody {
                error: error.into(),
                what_to_do: what_to_do.into(),
                problems: Vec::new(),
                in_force: Vec::new(),
            },
        }
    }

    /// 400: the request has no meaning.
    pub fn bad_request(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, what_to_do)
    }

    /// 404: there is no such thing.
    pub fn not_found(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error, what_to_do)
    }

    /// 405: the path takes other methods.
    pub fn method_not_allowed(error: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, error, what_to_do)
    }

    /// 500: a bug; the work behind a request did not come to an end.
    pub fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the request was not carried out: {error}"),
            "this is a bug; look into the log, compare GET /v1/config with what you expect",
        )
    }

    fn with_problems<T: Serialize>(mut self, problems: &[T]) -> Self {
        self.body.problems = values(problems);
        self
    }
}

fn values<T: Serialize>(items: &[T]) -> Vec<serde_json::Value> {
    items
        .iter()
        .map(|item| serde_json::to_value(item).expect("these types have a form in JSON"))
        .collect()
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let status = match error.kind {
            ApplyErrorKind::NotFound => StatusCode::NOT_FOUND,
            ApplyErrorKind::Conflict => StatusCode::CONFLICT,
            ApplyErrorKind::Outdated => StatusCode::PRECONDITION_FAILED,
            ApplyErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            ApplyErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.message, error.what_to_do)
    }
}

impl From<ConfigError> for ApiError {
    fn from(error: ConfigError) -> Self {
        let (text, what_to_do) = match error.problems() {
            [only] if only.key.is_empty() => (only.error.clone(), only.what_to_do.clone()),
            [only] => (
                format!("{}: {}", only.key, only.error),
                only.what_to_do.clone(),
            ),
            several => (
                format!("{} things are wrong", several.len()),
                "see problems, one by one".to_owned(),
            ),
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text, what_to_do)
            .with_problems(error.problems())
    }
}

impl From<FixedWhileRunning> for ApiError {
    fn from(error: FixedWhileRunning) -> Self {
        let keys: Vec<&str> = error.keys.iter().map(|fixed| fixed.key.as_str()).collect();
        let text = format!("{} cannot be changed while running", keys.join(", "));
        let what_to_do = match error.keys.as_slice() {
            [only] => only.what_to_do.clone(),
            _ => "see problems, one by one".to_owned(),
        };
        let problem = |fixed: &Fixed| {
            serde_json::json!({
                "key": fixed.key,
                "error": "cannot be changed while running",
                "what_to_do": fixed.what_to_do,
            })
        };
        let problems: Vec<_> = error.keys.iter().map(problem).collect();
        Self::new(StatusCode::CONFLICT, text, what_to_do).with_problems(&problems)
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(error) => error.into(),
            ChangeError::Config(error) => error.into(),
            ChangeError::Fixed(error) => error.into(),
            ChangeError::Contradiction(error) => Self::new(
                StatusCode::CONFLICT,
                error.to_string(),
                "let the file and what is in force agree",
            ),
            ChangeError::Draining => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the target is ending",
                "make the change when it serves again",
            ),
            ChangeError::State(error) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the state file {}: {}", error.path.display(), error.why),
                error.what_to_do,
            ),
            ChangeError::Plane { error, remaining } => {
                let mut error = Self::from(error);
                error.body.in_force = values(&remaining);
                error
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
