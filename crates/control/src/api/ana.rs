//! `/v1/subsystems/{nqn}/ana`: states of ANA groups.

use axum::extract::State;
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::body::{Body, PathParts};
use super::error::ApiError;
use super::state::ApiState;
use crate::ana::AnaGroup;
use crate::control::Control;
use config::ApplyError;
use config::schema::AnaState;

pub(super) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/subsystems/{nqn}/ana", get(list))
        .route("/v1/subsystems/{nqn}/ana/{group}", put(set))
}

/// Returns the groups that have namespaces or were set, with their states.
fn groups(control: &Control, nqn: &str) -> Result<Value, ApplyError> {
    let configuration = control.configuration();
    let subsystem = configuration.subsystem(nqn);
    let subsystem = subsystem.ok_or_else(|| ApplyError::no_subsystem(nqn))?;
    let usual = |group: u32| AnaGroup {
        nqn: nqn.to_owned(),
        group,
        state: subsystem.ana_state,
        epoch: 0,
    };
    let used = subsystem.namespaces.iter().map(|it| usual(it.ana_group));
    let set = control.ana().into_iter().filter(|it| it.nqn == nqn);
    let groups: BTreeMap<u32, AnaGroup> = used.chain(set).map(|it| (it.group, it)).collect();
    let view = |AnaGroup {
                    group,
                    state,
                    epoch,
                    ..
                }: &AnaGroup| {
        let all = subsystem
            .namespaces
            .iter()
            .filter(|it| it.ana_group == *group);
        let nsids: Vec<u32> = all.map(|it| it.nsid).collect();
        json!({ "group": group, "state": state, "epoch": epoch, "nsids": nsids })
    };
    Ok(json!({ "groups": groups.values().map(view).collect::<Vec<_>>() }))
}

async fn list(
    State(state): State<ApiState>,
    PathParts(nqn): PathParts<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(
        state.ask(move |control| groups(control, &nqn)).await??,
    ))
}

config::decoded! {
    /// `{ "state": "inaccessible", "epoch": 7 }`
    struct Wanted {
        state: AnaState = required("write optimized, non-optimized, inaccessible, persistent-loss or change"),
        epoch: u64 = or(0),
    }
}

/// When it answers, no command of the group is executed if the state refuses them.
async fn set(
    State(api): State<ApiState>,
    PathParts((nqn, group)): PathParts<(String, u32)>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let Wanted { state, epoch } = body.read()?;
    let set = AnaGroup {
        nqn,
        group,
        state,
        epoch,
    };
    let done = api.in_turn(move |control| {
        let nqn = set.nqn.clone();
        control.set_ana(set)?;
        Ok::<_, ApiError>(groups(control, &nqn)?)
    });
    Ok(Json(done.await??))
}
