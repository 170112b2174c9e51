//! `switchyard tenant`: shows and changes the tenants of a running target.

use super::tenant_events;
use crate::args::{DefaultTenantPolicy, TenantArgs, TenantChange, TenantCommand};
use crate::exit::Outcome;
use crate::output::Output;
use crate::tables::{DEFAULT_REFUSED, DEFAULT_SERVED, Shown};
use anyhow::{Error, Result, ensure};
use config::schema::Tenant;
use control::api::{TenantAnswer, TenantList};
use control::client::{self, Interface, Method, ask, escaped};
use serde_json::Value;

const PATH: &str = "/v1/tenants";

/// Carries it out.
///
/// # Errors
/// An API that is unreachable or refuses, or output that cannot be written.
pub fn run(args: &TenantArgs, output: Output) -> Result<Outcome> {
    let api = &args.api.interface();
    match &args.command {
        TenantCommand::List => {
            let answer = ask(api, Method::GET, PATH, None)?;
            output.result(&answer, Shown(&client::read::<TenantList>(&answer)?))?;
        }
        TenantCommand::Show { name } => tell(&ask(api, Method::GET, &path(name), None)?, output)?,
        TenantCommand::Add { name, change } => {
            let mut tenant = Tenant::new(name);
            change.apply(&mut tenant).map_err(Error::msg)?;
            let body = serde_json::to_value(&tenant)?;
            tell(&ask(api, Method::POST, PATH, Some(&body))?, output)?;
        }
        TenantCommand::Set { name, change } => {
            ensure!(
                *change != TenantChange::default(),
                "nothing to change; add an option, such as --weight 50 (see --help), or show the \
                 tenant with `switchyard tenant show {name}`"
            );
            let decide = |seen: &Value| {
                let TenantAnswer { mut tenant, .. } = client::read(seen)?;
                change.apply(&mut tenant).map_err(Error::msg)?;
                Ok(serde_json::to_value(&tenant)?)
            };
            tell(&client::change(api, &path(name), decide)?, output)?;
        }
        TenantCommand::Events { follow, after } => {
            tenant_events::run(*follow, *after, api, output)?;
        }
        TenantCommand::DefaultPolicy { policy } => set_default_policy(*policy, api, output)?,
        TenantCommand::Others { policy } => {
            output.note(
                "note: `tenant others` is now `tenant default-policy`; the old name will be removed \
                 in the next release",
            );
            set_default_policy(*policy, api, output)?;
        }
        TenantCommand::Remove { name } => {
            ask(api, Method::DELETE, &path(name), None)?;
            let removed = serde_json::json!({ "removed": name });
            output.result(&removed, format_args!("removed tenant {name}"))?;
        }
    }
    Ok(Outcome::Done)
}

fn set_default_policy(policy: DefaultTenantPolicy, api: &Interface, output: Output) -> Result<()> {
    let serve = policy == DefaultTenantPolicy::Serve;
    let body = serde_json::json!({ "default_tenant": serve });
    let answer = ask(api, Method::PATCH, PATH, Some(&body))?;
    let told = [DEFAULT_REFUSED, DEFAULT_SERVED][usize::from(serve)];
    output.result(&answer, told)
}

/// Returns the path of a tenant.
fn path(name: &str) -> String {
    format!("{PATH}/{}", escaped(name))
}

fn tell(answer: &Value, output: Output) -> Result<()> {
    output.result(answer, Shown(&client::read::<TenantAnswer>(answer)?))
}
