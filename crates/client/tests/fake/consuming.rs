//! Consuming from the broker of a few lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_proto::v1;
use punctual_proto::v1::consumer_service_server::ConsumerService;
use punctual_proto::v1::receive_stream_request::Request as Asked;
use punctual_proto::v1::receive_stream_response::Response as Told;
use punctual_proto::v1::settle::What;
use punctual_proto::v1::settled::Outcome;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::messages::Answers;
use super::{Broker, OnSettle, Settled, cut};

type Answer = Result<v1::ReceiveStreamResponse, Status>;

impl Broker {
    /// Gives what is there, as far as the credit goes, until the stream ends.
    async fn give(self, credit: Arc<AtomicU64>, tell: mpsc::Sender<Answer>) {
        loop {
            let changed = self.changed.notified();
            let taken = self.with_quietly(|state| {
                let is_allowed = credit.load(Ordering::SeqCst) > 0;
                is_allowed.then(|| state.deliveries.pop_front()).flatten()
            });
            let Some(delivery) = taken else {
                tokio::select! {
                    () = changed => continue,
                    () = tell.closed() => return,
                }
            };
            credit.fetch_sub(1, Ordering::SeqCst);
            let received = v1::ReceiveResponse { deliveries: vec![delivery] };
            let answer = v1::ReceiveStreamResponse { response: Some(Told::Received(received)) };
            if tell.send(Ok(answer)).await.is_err() {
                return;
            }
        }
    }

    fn with_quietly<T>(&self, look: impl FnOnce(&mut super::State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    fn settle(&self, settle: &v1::Settle) -> Answer {
        let what = settle.what.clone().unwrap();
        let planned = match what {
            What::Extend(_) => None,
            _ => self.with(|state| state.on_settle.pop_front()),
        };
        let result = match (planned, &what) {
            (Some(OnSettle::Cut), _) => return Err(cut()),
            (Some(OnSettle::NotHeld), _) => v1::SettleResult::NotHeld,
            (None, What::Ack(_)) => v1::SettleResult::Acked,
            (None, What::Nack(_)) => v1::SettleResult::Requeued,
            (None, What::Extend(_)) => v1::SettleResult::Extended,
            (None, What::Release(_)) => v1::SettleResult::Released,
        };
        if planned.is_none() {
            let settled = settle.receipts.iter().map(|receipt| match &what {
                What::Ack(_) => Settled::Acked(receipt.clone()),
                What::Nack(nack) => Settled::Nacked(receipt.clone(), nack.clone()),
                What::Extend(_) => Settled::Extended(receipt.clone()),
                What::Release(_) => Settled::Released(receipt.clone()),
            });
            self.with(|state| state.settled.extend(settled));
        }
        let results = vec![result.into(); settle.receipts.len()];
        let outcome = Some(Outcome::Results(v1::SettleResponse { results }));
        let settled = v1::Settled { sequence: settle.sequence, outcome };
        Ok(v1::ReceiveStreamResponse { response: Some(Told::Settled(settled)) })
    }
}

#[tonic::async_trait]
impl ConsumerService for Broker {
    type ReceiveStreamStream = Answers<v1::ReceiveStreamResponse>;

    async fn receive_stream(
        &self,
        request: Request<Streaming<v1::ReceiveStreamRequest>>,
    ) -> Result<Response<Self::ReceiveStreamStream>, Status> {
        self.note(request.metadata());
        let (broker, mut requests) = (self.clone(), request.into_inner());
        let (tell, told) = mpsc::channel(16);
        let credit = Arc::new(AtomicU64::new(0));
        let giving = tokio::spawn(self.clone().give(Arc::clone(&credit), tell.clone()));
        tokio::spawn(async move {
            let more = |more: u32| {
                let now = credit.fetch_add(u64::from(more), Ordering::SeqCst) + u64::from(more);
                broker.with(|state| state.credit_max = state.credit_max.max(now));
            };
            while let Ok(Some(request)) = requests.message().await {
                match request.request.unwrap() {
                    Asked::Open(open) => more(open.credit),
                    Asked::Credit(credit) => more(credit),
                    Asked::Stop(_) => {
                        credit.store(0, Ordering::SeqCst);
                        broker.with(|state| state.was_stopped = true);
                    }
                    Asked::Settle(settle) => {
                        let answer = broker.settle(&settle);
                        let is_cut = answer.is_err();
                        if tell.send(answer).await.is_err() || is_cut {
                            break;
                        }
                    }
                }
            }
            giving.abort();
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn receive(
        &self,
        _request: Request<v1::ReceiveRequest>,
    ) -> Result<Response<v1::ReceiveResponse>, Status> {
        let deliveries = self.with(|state| state.deliveries.drain(..).collect());
        Ok(Response::new(v1::ReceiveResponse { deliveries }))
    }

    async fn ack(
        &self,
        _request: Request<v1::AckRequest>,
    ) -> Result<Response<v1::SettleResponse>, Status> {
        Err(Status::unimplemented("ack"))
    }

    async fn nack(
        &self,
        _request: Request<v1::NackRequest>,
    ) -> Result<Response<v1::SettleResponse>, Status> {
        Err(Status::unimplemented("nack"))
    }

    async fn extend(
        &self,
        _request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::SettleResponse>, Status> {
        Err(Status::unimplemented("extend"))
    }

    async fn retry(
        &self,
        _request: Request<v1::RetryRequest>,
    ) -> Result<Response<v1::RetryResponse>, Status> {
        Err(Status::unimplemented("retry"))
    }
}
