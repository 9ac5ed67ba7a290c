//! Topics made, widened and removed by Kafka clients.
//!
//! Every change is taken down before it is made, as one over HTTP is, and is on disk before it is
//! answered. Each topic of a request is decided by itself.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_api::{Code, Problem};
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};
use punctual_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};
use punctual_kafka_wire::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use punctual_model::limits::{PARTITIONS_DEFAULT, PARTITIONS_MAX};
use punctual_model::ports::Topic;
use punctual_model::topic::TopicKind;
use punctual_model::{TopicName, TopicSettings};

use crate::access::Permission;
use crate::http::audit;
use crate::http::problem::of_topic;
use crate::http::topics::with_topics;
use crate::kafka::call::Call;
use crate::kafka::configs::{self, topic};
use crate::kafka::refusal::Refusal;
use crate::kafka::shared::NODE_ID;
use crate::kafka::topic_id::NO_TOPIC;

/// Makes topics.
pub(crate) async fn create_topics(
    call: &Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let mut named: HashMap<String, usize> = HashMap::new();
    for asked in &request.topics {
        *named.entry(asked.name.clone()).or_default() += 1;
    }
    let mut response = CreateTopicsResponse::default();
    for asked in request.topics {
        let twice = named.get(&asked.name).is_some_and(|times| *times > 1);
        let outcome = match twice {
            true => {
                let text = "the topic is named more than once";
                Err(Refusal::new(ErrorCode::INVALID_REQUEST, text))
            }
            false => create(call, &asked, request.validate_only).await,
        };
        response.topics.push(match outcome {
            Ok(made) => created(call, &asked.name, &made),
            Err(refusal) => CreatableTopicResult {
                name: asked.name,
                error_code: refusal.code.code(),
                error_message: refusal.message,
                ..CreatableTopicResult::default()
            },
        });
    }
    response
}

/// A topic that was made, or that would have been.
struct Made {
    topic: Topic,
    exists: bool,
}

async fn create(call: &Call, asked: &CreatableTopic, validate_only: bool) -> Result<Made, Refusal> {
    let name = TopicName::new(&asked.name).map_err(|_illegal| Refusal::illegal_name())?;
    if !call.may_topic(Permission::Manage, &name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
    }
    if call.shared.broker.topics().by_name(&name).is_some() {
        return Err(exists(&name));
    }
    let settings = settings_of(call, asked)?;
    if validate_only {
        let partitions = settings.partitions;
        let id = punctual_model::TopicId::MAX;
        let topic =
            Topic { id, name, kind: TopicKind::Plain, key_partitions: partitions, settings };
        return Ok(Made { topic, exists: false });
    }
    let configs = asked.configs.iter().map(|config| {
        let value = config.value.as_deref().unwrap_or("");
        format!(" {}={value}", config.name)
    });
    let details = format!("partitions={}{}", settings.partitions, configs.collect::<String>());
    let shared = &call.shared.shared;
    let _one_at_a_time = shared.changes.lock().await;
    let wanted = name.clone();
    let work = with_topics(shared, move |topics| match topics.by_name(&wanted) {
        Some(_) => Ok(None),
        None => topics.put(&wanted, settings).map(Some).map_err(of_topic),
    });
    let what = ("topic_put", Some(&name));
    let details = vec![("settings", details)];
    let made = audit::taken_down(shared, call.asker(), what, details, work).await;
    let made = made.map_err(Refusal::of_problem)?.ok_or_else(|| exists(&name))?;
    shared.broker.topics_changed();
    Ok(Made { topic: Topic::clone(&made), exists: true })
}

fn exists(name: &TopicName) -> Refusal {
    Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, format!("topic {name} exists already"))
}

fn settings_of(call: &Call, asked: &CreatableTopic) -> Result<TopicSettings, Refusal> {
    let partitions = if asked.assignments.is_empty() {
        if asked.replication_factor != -1 && asked.replication_factor != 1 {
            let text = "there is one broker, so the replication factor is 1";
            return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, text));
        }
        match asked.num_partitions {
            -1 => PARTITIONS_DEFAULT,
            number => partitions(number)?,
        }
    } else {
        assigned(asked)?
    };
    let mut settings = TopicSettings { partitions, ..TopicSettings::default() };
    let delay_max = call.shared.shared.delay_max();
    for config in &asked.configs {
        let key = topic::find(&config.name)?;
        let value = config.value.as_deref().ok_or_else(|| {
            let text = format!("{} has no value", config.name);
            Refusal::new(ErrorCode::INVALID_CONFIG, text)
        })?;
        key.set(&mut settings, value, delay_max)?;
    }
    Ok(settings)
}

fn partitions(number: i32) -> Result<u16, Refusal> {
    let legal = u16::try_from(number).ok().filter(|n| (1..=PARTITIONS_MAX).contains(n));
    legal.ok_or_else(|| {
        let text = format!("the number of partitions is from 1 to {PARTITIONS_MAX}");
        Refusal::new(ErrorCode::INVALID_PARTITIONS, text)
    })
}

/// The number of partitions of a topic whose partitions were given to brokers by hand.
fn assigned(asked: &CreatableTopic) -> Result<u16, Refusal> {
    if asked.num_partitions != -1 || asked.replication_factor != -1 {
        let text = "with an assignment, the numbers of partitions and replicas are -1";
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
    }
    let mut indices: Vec<i32> = asked.assignments.iter().map(|one| one.partition_index).collect();
    indices.sort_unstable();
    let whole = (0..).zip(&indices).all(|(expected, index)| expected == *index);
    if !whole || asked.assignments.iter().any(|one| one.broker_ids != [NODE_ID]) {
        return Err(wrong_assignment());
    }
    partitions(i32::try_from(indices.len()).unwrap_or(i32::MAX))
}

fn wrong_assignment() -> Refusal {
    let text = format!("each partition, from 0 on, is on broker {NODE_ID}, the only one");
    Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, text)
}

fn created(call: &Call, name: &str, made: &Made) -> CreatableTopicResult {
    let topic = &made.topic;
    let mut result = CreatableTopicResult {
        name: name.to_owned(),
        topic_id: if made.exists { call.shared.cluster.uuid(topic.id) } else { NO_TOPIC },
        ..CreatableTopicResult::default()
    };
    if !call.may_topic(Permission::See, &topic.name) {
        result.topic_config_error_code = ErrorCode::TOPIC_AUTHORIZATION_FAILED.code();
        return result;
    }
    let configs =
        configs::shown_to_maker(topic).map(|(name, value, config_source)| CreatableTopicConfigs {
            name: name.to_owned(),
            value: Some(value),
            config_source,
            ..CreatableTopicConfigs::default()
        });
    result.configs = Some(configs.collect());
    result.num_partitions = i32::from(topic.settings.partitions);
    result.replication_factor = 1;
    result
}

/// Removes topics.
pub(crate) async fn delete_topics(
    call: &Call,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let names = request.topic_names.into_iter();
    let by_name = names.map(|name| DeleteTopicState { name: Some(name), topic_id: NO_TOPIC });
    let mut response = DeleteTopicsResponse::default();
    for asked in request.topics.into_iter().chain(by_name) {
        let outcome = delete(call, &asked).await;
        let mut result = DeletableTopicResult {
            name: asked.name,
            topic_id: asked.topic_id,
            ..DeletableTopicResult::default()
        };
        match outcome {
            Ok(topic) => {
                result.name = Some(topic.name.to_string());
                result.topic_id = call.shared.cluster.uuid(topic.id);
            }
            Err(refusal) => {
                result.error_code = refusal.code.code();
                result.error_message = refusal.message;
            }
        }
        response.responses.push(result);
    }
    response
}

async fn delete(call: &Call, asked: &DeleteTopicState) -> Result<Arc<Topic>, Refusal> {
    let topic = match &asked.name {
        Some(_) if asked.topic_id != NO_TOPIC => {
            let text = "a topic is named by its name or by its id, not by both";
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
        }
        Some(name) => call.topic_named(name)?,
        None => call.topic_of_id(&asked.topic_id)?,
    };
    if !call.may_topic(Permission::Manage, &topic.name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
    }
    let shared = &call.shared.shared;
    let _one_at_a_time = shared.changes.lock().await;
    let (name, id) = (topic.name.clone(), topic.id);
    let work = with_topics(shared, move |topics| {
        // Another one may have got the name meanwhile.
        if topics.by_name(&name).is_none_or(|found| found.id != id) {
            return Err(Code::TopicNotFound.into());
        }
        let deleted = topics.delete(&name).map_err(of_topic)?;
        if deleted { Ok(()) } else { Err(Problem::from(Code::TopicNotFound)) }
    });
    let what = ("topic_delete", Some(&topic.name));
    let deleted = audit::taken_down(shared, call.asker(), what, Vec::new(), work).await;
    deleted.map_err(Refusal::of_problem)?;
    shared.broker.topics_changed();
    Ok(topic)
}

/// Gives topics more partitions.
pub(crate) async fn create_partitions(
    call: &Call,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut response = CreatePartitionsResponse::default();
    for asked in request.topics {
        let outcome = widen(call, &asked, request.validate_only).await;
        let refusal = outcome.err().unwrap_or_else(|| ErrorCode::NONE.into());
        response.results.push(CreatePartitionsTopicResult {
            name: asked.name,
            error_code: refusal.code.code(),
            error_message: refusal.message,
        });
    }
    response
}

async fn widen(
    call: &Call,
    asked: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Refusal> {
    let topic = call.topic_named(&asked.name)?;
    if !call.may_topic(Permission::Manage, &topic.name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
    }
    if topic.kind != TopicKind::Plain {
        return Err(Refusal::reserved());
    }
    let count = partitions(asked.count)?;
    let more = wider(topic.settings.partitions, count)?;
    if let Some(assignments) = &asked.assignments {
        let right = assignments.len() == usize::from(more)
            && assignments.iter().all(|one| one.broker_ids == [NODE_ID]);
        if !right {
            return Err(wrong_assignment());
        }
    }
    if validate_only {
        return Ok(());
    }
    let details = format!("partitions={count}");
    change(call, &topic.name, ("topic_patch", details), move |settings| {
        wider(settings.partitions, count)?;
        settings.partitions = count;
        Ok(())
    })
    .await
}

/// How many more partitions that are.
fn wider(has: u16, wants: u16) -> Result<u16, Refusal> {
    let more = wants.checked_sub(has).filter(|more| *more > 0);
    more.ok_or_else(|| {
        let text = match wants == has {
            true => format!("the topic has {has} partitions already"),
            false => format!("the topic has {has} partitions, and a topic cannot lose any"),
        };
        Refusal::new(ErrorCode::INVALID_PARTITIONS, text)
    })
}

/// Changes the settings of a topic: taken down, and on disk when this ends.
pub(crate) async fn change(
    call: &Call,
    name: &TopicName,
    (what, details): (&str, String),
    change: impl Fn(&mut TopicSettings) -> Result<(), Refusal> + Send + 'static,
) -> Result<(), Refusal> {
    let shared = &call.shared.shared;
    let _one_at_a_time = shared.changes.lock().await;
    let wanted = name.clone();
    let work = with_topics(shared, move |topics| {
        let topic = topics.by_name(&wanted).ok_or(Code::TopicNotFound)?;
        let mut settings = topic.settings.clone();
        change(&mut settings).map_err(Refusal::into_problem)?;
        topics.put(&wanted, settings).map_err(of_topic)
    });
    let details = vec![("settings", details)];
    let changed = audit::taken_down(shared, call.asker(), (what, Some(name)), details, work).await;
    changed.map_err(Refusal::of_problem)?;
    shared.broker.topics_changed();
    Ok(())
}
