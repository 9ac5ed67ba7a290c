//! Settings of topics and of the broker: looked at and, for topics, changed.
//!
//! A change is taken down before it is made, as one over HTTP is. Of one resource everything is
//! changed or nothing.

pub(crate) mod topic;
mod broker;

use std::collections::HashSet;

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};
use punctual_kafka_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};
use punctual_kafka_wire::messages::incremental_alter_configs::{
    AlterConfigsResourceResponse as IncrementalResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use punctual_model::ports::Topic;
use punctual_model::{Span, TopicSettings};

use self::broker::BrokerSetting;
use self::topic::TopicKey;
use crate::access::Permission;
use crate::kafka::call::Call;
use crate::kafka::refusal::Refusal;
use crate::kafka::shared::NODE_ID;
use crate::kafka::topics;

/// Kinds of resources, by the numbers of the protocol.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Who said it, by the numbers of the protocol.
const TOPIC_SOURCE: i8 = 1;
const STATIC_BROKER_SOURCE: i8 = 4;
const DEFAULT_SOURCE: i8 = 5;

/// What is done with one setting, by the numbers of the protocol.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// The settings of these resources.
pub(crate) async fn describe_configs(
    call: &Call,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let synonyms = request.include_synonyms;
    let results = request.resources.into_iter().map(|resource| {
        let described = described(call, &resource, synonyms);
        let (error, configs) = match described {
            Ok(configs) => (Refusal::from(ErrorCode::NONE), configs),
            Err(refusal) => (refusal, Vec::new()),
        };
        DescribeConfigsResult {
            error_code: error.code.code(),
            error_message: error.message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

fn described(
    call: &Call,
    resource: &DescribeConfigsResource,
    synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let wanted = |name: &str| {
        let keys = resource.configuration_keys.as_ref();
        keys.is_none_or(|keys| keys.is_empty() || keys.iter().any(|key| key == name))
    };
    match resource.resource_type {
        TOPIC => {
            let topic = call.topic_named(&resource.resource_name)?;
            if !call.may_topic(Permission::See, &topic.name) {
                return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
            }
            let keys = topic::KEYS.iter().filter(|key| wanted(key.name));
            Ok(keys.map(|key| topic_setting(key, &topic, synonyms)).collect())
        }
        BROKER => {
            check_broker(call, &resource.resource_name)?;
            if resource.resource_name.is_empty() {
                // What holds for all brokers of a cluster, if somebody has changed it.
                return Ok(Vec::new());
            }
            let all = broker::settings(call).into_iter().filter(|setting| wanted(setting.name));
            Ok(all.map(|setting| broker_setting(setting, synonyms)).collect())
        }
        other => Err(unknown_resource(other)),
    }
}

fn unknown_resource(kind: i8) -> Refusal {
    let text = format!("resources of the type {kind} have no settings here");
    Refusal::new(ErrorCode::INVALID_REQUEST, text)
}

fn check_broker(call: &Call, name: &str) -> Result<(), Refusal> {
    if !call.may_whole(Permission::Observe) {
        return Err(ErrorCode::CLUSTER_AUTHORIZATION_FAILED.into());
    }
    if name.is_empty() || name == NODE_ID.to_string() {
        return Ok(());
    }
    let text = format!("the one broker there is has the number {NODE_ID}");
    Err(Refusal::new(ErrorCode::INVALID_REQUEST, text))
}

fn topic_setting(
    key: &TopicKey,
    topic: &Topic,
    with_synonyms: bool,
) -> DescribeConfigsResourceResult {
    let (value, is_own) = key.shown(topic);
    let mut synonyms = Vec::new();
    if with_synonyms {
        if is_own {
            synonyms.push(synonym(key.name, &value, TOPIC_SOURCE));
        }
        synonyms.extend(key.of_broker.map(|name| synonym(name, key.default, DEFAULT_SOURCE)));
    }
    DescribeConfigsResourceResult {
        name: key.name.to_owned(),
        value: Some(value),
        config_source: if is_own { TOPIC_SOURCE } else { DEFAULT_SOURCE },
        synonyms,
        config_type: key.kind as i8,
        ..DescribeConfigsResourceResult::default()
    }
}

fn broker_setting(setting: BrokerSetting, with_synonyms: bool) -> DescribeConfigsResourceResult {
    let source = if setting.is_configured { STATIC_BROKER_SOURCE } else { DEFAULT_SOURCE };
    let synonyms = match with_synonyms {
        true => vec![synonym(setting.name, &setting.value, source)],
        false => Vec::new(),
    };
    DescribeConfigsResourceResult {
        name: setting.name.to_owned(),
        value: Some(setting.value),
        read_only: true,
        config_source: source,
        synonyms,
        config_type: setting.kind as i8,
        ..DescribeConfigsResourceResult::default()
    }
}

fn synonym(name: &str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym { name: name.to_owned(), value: Some(value.to_owned()), source }
}

/// The settings of a new topic, as its maker is told.
pub(crate) fn shown_to_maker(
    topic: &Topic,
) -> impl Iterator<Item = (&'static str, String, i8)> + '_ {
    topic::KEYS.iter().map(|key| {
        let (value, is_own) = key.shown(topic);
        (key.name, value, if is_own { TOPIC_SOURCE } else { DEFAULT_SOURCE })
    })
}

/// One change of a setting.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    operation: i8,
    value: Option<String>,
}

/// Sets the settings of these resources; what is not named is what it is without anybody's saying.
pub(crate) async fn alter_configs(
    call: &Call,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let mut response = AlterConfigsResponse::default();
    for resource in request.resources {
        let steps = resource.configs.into_iter();
        let steps = steps
            .map(|config| Step { name: config.name, operation: SET, value: config.value })
            .collect();
        let ask = Ask { steps, anew: true, validate_only: request.validate_only };
        let name = resource.resource_name;
        let refusal = altered(call, (resource.resource_type, &name), ask).await;
        response.responses.push(AlterConfigsResourceResponse {
            error_code: refusal.code.code(),
            error_message: refusal.message,
            resource_type: resource.resource_type,
            resource_name: name,
        });
    }
    response
}

/// Changes single settings of these resources.
pub(crate) async fn incremental_alter_configs(
    call: &Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut response = IncrementalAlterConfigsResponse::default();
    for resource in request.resources {
        let steps = resource.configs.into_iter().map(|config| Step {
            name: config.name,
            operation: config.config_operation,
            value: config.value,
        });
        let ask = Ask { steps: steps.collect(), anew: false, validate_only: request.validate_only };
        let name = resource.resource_name;
        let refusal = altered(call, (resource.resource_type, &name), ask).await;
        response.responses.push(IncrementalResponse {
            error_code: refusal.code.code(),
            error_message: refusal.message,
            resource_type: resource.resource_type,
            resource_name: name,
        });
    }
    response
}

/// What is asked of one resource.
struct Ask {
    steps: Vec<Step>,
    /// Whether what is not named goes back to what it is without anybody's saying.
    anew: bool,
    validate_only: bool,
}

async fn altered(call: &Call, (kind, name): (i8, &str), ask: Ask) -> Refusal {
    let outcome = match kind {
        TOPIC => alter_topic(call, name, ask).await,
        BROKER => check_broker(call, name).and_then(|()| {
            let text = "the configuration of the broker is not changed over the network";
            Err(Refusal::new(ErrorCode::POLICY_VIOLATION, text))
        }),
        other => Err(unknown_resource(other)),
    };
    outcome.err().unwrap_or_else(|| ErrorCode::NONE.into())
}

async fn alter_topic(call: &Call, name: &str, ask: Ask) -> Result<(), Refusal> {
    let topic = call.topic_named(name)?;
    if !call.may_topic(Permission::Manage, &topic.name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
    }
    let mut seen = HashSet::new();
    if let Some(twice) = ask.steps.iter().find(|step| !seen.insert(step.name.as_str())) {
        let text = format!("{} is named twice", twice.name);
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
    }
    let delay_max = call.shared.shared.delay_max();
    let validate_only = ask.validate_only;
    let details = ask.steps.iter().map(|step| {
        let value = step.value.as_deref().unwrap_or("");
        format!("{}={value}", step.name)
    });
    let details: Vec<String> = details.collect();
    let change = move |settings: &mut TopicSettings| applied(settings, &ask, delay_max);
    // What is wrong is refused before it is taken down.
    change(&mut topic.settings.clone())?;
    if validate_only {
        return Ok(());
    }
    topics::change(call, &topic.name, ("topic_patch", details.join(" ")), change).await
}

fn applied(settings: &mut TopicSettings, ask: &Ask, delay_max: Span) -> Result<(), Refusal> {
    if ask.anew {
        topic::KEYS.iter().for_each(|key| key.reset(settings));
    }
    for step in &ask.steps {
        let key = topic::find(&step.name)?;
        let value = step.value.as_deref();
        let missing = || {
            let text = format!("{} has no value", step.name);
            Refusal::new(ErrorCode::INVALID_CONFIG, text)
        };
        match step.operation {
            SET => key.set(settings, value.ok_or_else(missing)?, delay_max)?,
            DELETE => key.reset(settings),
            APPEND | SUBTRACT if key.is_list() => {
                change_list(
                    key,
                    settings,
                    (step.operation, value.ok_or_else(missing)?),
                    delay_max,
                )?;
            }
            APPEND | SUBTRACT => {
                let text = format!("{} is not a list", step.name);
                return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
            }
            other => {
                let text = format!("there is no operation {other} on settings");
                return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
            }
        }
    }
    Ok(())
}

/// Puts values into a list, or takes them out of it.
fn change_list(
    key: &TopicKey,
    settings: &mut TopicSettings,
    (operation, value): (i8, &str),
    delay_max: Span,
) -> Result<(), Refusal> {
    let kept = settings.kept.get(key.name).map_or(key.default, |kept| kept);
    let mut list: Vec<String> =
        kept.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
    for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        list.retain(|known| known != item);
        if operation == APPEND {
            list.push(item.to_owned());
        }
    }
    key.set(settings, &list.join(","), delay_max)
}
