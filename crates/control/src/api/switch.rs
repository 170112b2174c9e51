//! `/v1/switch`: the knobs of the switch, and what it did; `/v1/switch/knobs`: all knobs.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Map, Value, json};
use switch::Knobs;
use switch::knobs::{Knob, Preset};

use super::body::Body;
use super::error::ApiError;
use super::state::ApiState;
use config::ApplyError;
use config::action::Action;
use config::schema::{Plain, Switch, SwitchChange};

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/switch", get(show).patch(turn))
        .route("/v1/switch/knobs", get(async || Json(KnobList::new())))
}

/// Returns the values of all knobs: the nearest preset, the differences from it, and all that are
/// in use.
fn knobs(switch: Switch) -> Value {
    let all: Map<String, Value> = switch
        .0
        .entries()
        .map(|entry| (entry.knob.key.to_owned(), json!(Plain::of(&entry))))
        .collect();
    json!({ "setting": switch, "knobs": all })
}

/// The knobs, and what the switch did on each core.
async fn show(State(state): State<ApiState>) -> Result<Json<Value>, ApiError> {
    let mut view = knobs(state.configuration().switch);
    let snapshot = state.snapshot().await?;
    view["threads"] = json!(snapshot.threads);
    view["cores"] = json!(snapshot.switch);
    Ok(Json(view))
}

/// Turns the knobs that the body names: to a preset with `baseline`, and one by one. Answers when
/// they count on every core.
async fn turn(State(state): State<ApiState>, body: Body) -> Result<Json<Value>, ApiError> {
    let change: SwitchChange = body.read()?;
    let actions = state
        .change(move |before| {
            let switch = change
                .applied_to(before.switch)
                .map_err(|error| ApplyError::invalid(error.problem(), error.remedy()))?;
            let turns = switch != before.switch;
            let turn = turns.then_some(Action::TurnKnobs { switch });
            Ok(turn.into_iter().collect())
        })
        .await?;
    let switch = match actions.as_slice() {
        [Action::TurnKnobs { switch }] => *switch,
        _ => state.configuration().switch,
    };
    Ok(Json(knobs(switch)))
}

/// The presets, and all knobs.
#[derive(Debug, Serialize)]
pub struct KnobList {
    /// Names of the presets.
    pub presets: Vec<&'static str>,
    /// The knobs.
    pub knobs: Vec<KnobLine>,
}

/// A knob.
#[derive(Debug, Serialize)]
pub struct KnobLine {
    /// Its key.
    pub key: &'static str,
    /// The values that it accepts.
    pub range: String,
    /// The default; `None` if the knob has no effect by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The setting with which it has an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<&'static str>,
    /// What it sets.
    pub meaning: &'static str,
}

impl Default for KnobList {
    fn default() -> Self {
        Self::new()
    }
}

impl KnobList {
    /// Returns all of them.
    #[must_use]
    pub fn new() -> Self {
        let defaults = Knobs::default();
        let text = |knob: &Knob| {
            let mut entries = defaults.entries();
            entries.find(|entry| entry.knob.key == knob.key)
        };
        let line = |knob: &Knob| KnobLine {
            key: knob.key,
            range: knob.range.to_string(),
            default: text(knob).map(|entry| entry.text()),
            with: knob.with,
            meaning: knob.meaning,
        };
        Self {
            presets: Preset::ALL.iter().map(|(_, name)| *name).collect(),
            knobs: Knob::ALL.iter().map(line).collect(),
        }
    }
}
