//! `veilstream generate` into a topic: a plain producer, keyed by person as real topics are.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use super::connection;
use crate::codec::message::write_schema_id;
use crate::source::generator::{Generator, GeneratorSettings};

/// The time for the last messages. Larger: a broker that is gone is noticed late. Smaller: a slow one loses messages.
const FLUSH: Duration = Duration::from_secs(60);
/// The time for looking the topic up. Larger: a wrong address is told late. Smaller: a slow network counts as gone.
const ASK: Duration = Duration::from_secs(15);
/// The time for a new topic to be known to all brokers. Larger: a misspelt name is told late. Smaller: a new topic is missed.
const TOPIC_APPEARS: Duration = Duration::from_secs(5);

/// What the messages hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// A JSON object.
    Json,
    /// Avro in the Confluent wire format, with the schema of this id.
    ConfluentAvro(u32),
}

/// Where and how to write.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    /// The topic; it must be there.
    pub topic: &'a str,
    /// Whether messages carry the person as their key.
    pub keyed: bool,
    /// What they hold.
    pub payload: Payload,
}

/// What keeps the records from the topic.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The cluster failed.
    #[error("kafka: {0}")]
    Kafka(String),
    /// There is no such topic.
    #[error("the topic {0} does not exist; create it first")]
    NoTopic(String),
}

impl From<KafkaError> for GenerateError {
    fn from(error: KafkaError) -> Self {
        Self::Kafka(match &error {
            // The rest of it may quote a password.
            KafkaError::ClientConfig(_, _, key, _) => format!("the setting {key} is not taken"),
            other => other.to_string(),
        })
    }
}

/// Writes everything that `settings` describe; returns how many records the brokers have.
///
/// # Errors
/// If the topic is not there, or a record could not be delivered.
pub fn generate(
    client: &ClientConfig,
    target: &Target<'_>,
    settings: &GeneratorSettings,
) -> Result<u64, GenerateError> {
    let producer: BaseProducer<Deliveries> = client.create_with_context(Deliveries::default())?;
    look_up(&producer, target.topic)?;
    let mut generator = Generator::new(settings);
    let started = Instant::now();
    let (mut text, mut payload, mut key) = (String::new(), Vec::new(), String::new());
    loop {
        let wait = settings.due(generator.emitted()).saturating_sub(started.elapsed());
        if !wait.is_zero() {
            producer.poll(wait);
            continue;
        }
        let Some(event) = generator.next_event() else { break };
        payload.clear();
        match target.payload {
            Payload::Json => {
                text.clear();
                event.write_json(&mut text);
                payload.extend_from_slice(text.as_bytes());
            }
            Payload::ConfluentAvro(id) => {
                write_schema_id(id, &mut payload);
                event.write_avro(&mut payload);
            }
        }
        key.clear();
        event.write_user(&mut key);
        let mut record = BaseRecord::<str, [u8]>::to(target.topic).payload(&payload);
        if target.keyed {
            record = record.key(&key);
        }
        send(&producer, record)?;
        producer.context().failed()?;
    }
    producer.flush(FLUSH)?;
    producer.context().failed()?;
    Ok(generator.emitted())
}

/// Waits a moment for a topic that was created just now: brokers hear of it one after the other.
fn look_up(producer: &BaseProducer<Deliveries>, topic: &str) -> Result<(), GenerateError> {
    let started = Instant::now();
    loop {
        let metadata = producer.client().fetch_metadata(Some(topic), ASK)?;
        if metadata.topics().iter().any(|t| !t.partitions().is_empty()) {
            return Ok(());
        }
        if started.elapsed() > TOPIC_APPEARS {
            return Err(GenerateError::NoTopic(topic.to_owned()));
        }
        producer.poll(Duration::from_millis(200));
    }
}

fn send(producer: &BaseProducer<Deliveries>, mut record: BaseRecord<'_, str, [u8]>) -> Result<(), GenerateError> {
    loop {
        match producer.send(record) {
            Ok(()) => {
                producer.poll(Duration::ZERO);
                return Ok(());
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(Duration::from_millis(50));
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

/// Remembers the first record that could not be delivered.
#[derive(Default)]
struct Deliveries(Mutex<Option<KafkaError>>);

impl Deliveries {
    fn failed(&self) -> Result<(), GenerateError> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _opaque: ()) {
        if let Err((error, _)) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
    }
}
