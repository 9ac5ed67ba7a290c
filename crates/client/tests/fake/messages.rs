//! Sending to the broker of a few lines.

use std::pin::Pin;

use punctual_proto::v1;
use punctual_proto::v1::message_service_server::MessageService;
use punctual_proto::v1::send_stream_response::Outcome;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Broker, OnSend, cut, refusal};

pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Broker {
    /// What becomes of a batch: an answer, silence, or the end of the stream.
    fn take_batch(&self, batch: &v1::SendStreamRequest) -> Option<Result<Outcome, Status>> {
        let plan = self.with(|state| {
            state.batches.push(batch.messages.len());
            state.on_send.pop_front()
        });
        match plan.unwrap_or(OnSend::Store) {
            OnSend::Store => Some(Ok(Outcome::Sent(self.store(&batch.messages)))),
            OnSend::StoreAndCut => {
                self.store(&batch.messages);
                Some(Err(cut()))
            }
            OnSend::Cut => Some(Err(cut())),
            OnSend::Refuse(problem) => Some(Ok(Outcome::Problem(problem))),
            OnSend::Silence => None,
        }
    }

    fn store(&self, messages: &[v1::NewMessage]) -> v1::SendResponse {
        let store = |message: &v1::NewMessage| {
            let body = String::from_utf8(message.body.to_vec()).unwrap();
            let duplicate = self.with(|state| match &message.id {
                Some(id) => state.stored.insert(id.clone(), body.clone()).is_some(),
                None => {
                    state.nameless.push(body.clone());
                    false
                }
            });
            v1::Sent { id: format!("id of {body}"), duplicate, ..v1::Sent::default() }
        };
        v1::SendResponse { messages: messages.iter().map(store).collect() }
    }
}

#[tonic::async_trait]
impl MessageService for Broker {
    type SendStreamStream = Answers<v1::SendStreamResponse>;

    async fn send_stream(
        &self,
        request: Request<Streaming<v1::SendStreamRequest>>,
    ) -> Result<Response<Self::SendStreamStream>, Status> {
        self.note(request.metadata());
        let (broker, mut batches) = (self.clone(), request.into_inner());
        let (tell, told) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok(Some(batch)) = batches.message().await {
                let Some(outcome) = broker.take_batch(&batch) else { continue };
                let is_cut = outcome.is_err();
                let answer = outcome.map(|outcome| v1::SendStreamResponse {
                    sequence: batch.sequence,
                    outcome: Some(outcome),
                });
                if tell.send(answer).await.is_err() || is_cut {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        self.note(request.metadata());
        match request.into_inner().name.unwrap().id.as_str() {
            "pending" => Ok(Response::new(v1::CancelResponse {})),
            code => Err(refusal(code)),
        }
    }

    async fn change(
        &self,
        request: Request<v1::ChangeRequest>,
    ) -> Result<Response<v1::Message>, Status> {
        self.note(request.metadata());
        match self.with(|state| state.on_send.pop_front()) {
            Some(_) => Err(cut()),
            None => Ok(Response::new(v1::Message::default())),
        }
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let request = request.into_inner();
        let first: u32 =
            if request.cursor.is_empty() { 0 } else { request.cursor.parse().unwrap() };
        let name = |number: u32| v1::Message { id: number.to_string(), ..v1::Message::default() };
        let messages = (first..5.min(first + request.limit)).map(name).collect();
        let next = first + request.limit;
        let next = if next < 5 { next.to_string() } else { String::new() };
        Ok(Response::new(v1::ListResponse { messages, next }))
    }

    async fn send(
        &self,
        _request: Request<v1::SendRequest>,
    ) -> Result<Response<v1::SendResponse>, Status> {
        Err(Status::unimplemented("send"))
    }

    async fn get(
        &self,
        _request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::Message>, Status> {
        Err(refusal("not_found"))
    }

    async fn deliver(
        &self,
        _request: Request<v1::DeliverRequest>,
    ) -> Result<Response<v1::Message>, Status> {
        Err(refusal("already_delivered"))
    }

    async fn list_series(
        &self,
        _request: Request<v1::ListSeriesRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        Err(Status::unimplemented("list series"))
    }

    async fn read(
        &self,
        _request: Request<v1::ReadRequest>,
    ) -> Result<Response<v1::ReadResponse>, Status> {
        Err(Status::unimplemented("read"))
    }

    async fn forecast(
        &self,
        _request: Request<v1::ForecastRequest>,
    ) -> Result<Response<v1::ForecastResponse>, Status> {
        Err(Status::unimplemented("forecast"))
    }
}
