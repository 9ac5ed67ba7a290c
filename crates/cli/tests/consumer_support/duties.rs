//! A consumer at work: it acks most of what it gets, and fails with the rest in all the ways there
//! are.

use std::time::{Duration, Instant};

use super::deliveries::{Book, Parting, Told, Wish};
use super::{Answered, Ask, Consumer, Gone, Offer};
use crate::process_support::dice::Dice;

/// How a consumer behaves: of a thousand messages, with how many it does what. The others it acks.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    pub nack: u64,
    pub reject: u64,
    /// Lets the lease run out.
    pub leave: u64,
    pub lease: Duration,
    /// The shortest wait that the group itself gives a message that failed.
    pub rung: Duration,
}

impl Manners {
    /// Acks everything.
    pub fn gentle(self) -> Self {
        Self { nack: 0, reject: 0, leave: 0, ..self }
    }
}

/// A receipt whose lease was left to run out, and when it has done so.
#[derive(Clone, Debug)]
pub struct Stale {
    pub receipt: String,
    pub since: Instant,
}

/// One consumer and its part of the book.
#[derive(Debug)]
pub struct Worker {
    pub consumer: Consumer,
    pub dice: Dice,
    pub manners: Manners,
    pub book: Book,
    pub stale: Vec<Stale>,
    /// The number of a message, out of its body.
    pub number: fn(&Offer) -> u64,
}

impl Worker {
    /// Receives once and parts with everything; answers how much that was.
    pub fn turn(&mut self, max: u64, wait: Duration) -> Result<usize, Gone> {
        let ask = Ask { max, wait, lease: self.manners.lease };
        let received = self.consumer.receive(ask)?;
        let (mut ack, mut nack, mut reject) = (Vec::new(), Vec::new(), Vec::new());
        for offer in &received.answer {
            let place = self.note(&received, offer);
            let Manners { nack: fails, reject: rejects, leave: leaves, .. } = self.manners;
            let one = (place, offer.receipt.as_str());
            match self.dice.next() % 1000 {
                roll if roll < fails => nack.push(one),
                roll if roll < fails + rejects => reject.push(one),
                roll if roll < fails + rejects + leaves => {
                    let since = self.book.deliveries[place].lease_end_most();
                    self.stale.push(Stale { receipt: offer.receipt.clone(), since });
                }
                _ => ack.push(one),
            }
        }
        self.part(Wish::Ack, None, &ack)?;
        let delay = self.dice.chance(50).then(|| Duration::from_millis(self.dice.within(20, 300)));
        self.part(Wish::Again(delay.unwrap_or(self.manners.rung)), delay, &nack)?;
        self.part(Wish::Reject, None, &reject)?;
        Ok(received.answer.len())
    }

    /// Writes a message down; answers where.
    pub fn note(&mut self, received: &Answered<Vec<Offer>>, offer: &Offer) -> usize {
        let number = (self.number)(offer);
        self.book.note(received, offer, number, self.manners.lease)
    }

    /// Settles messages, each by its place in the book and its receipt.
    pub fn part(
        &mut self,
        wish: Wish,
        delay: Option<Duration>,
        messages: &[(usize, &str)],
    ) -> Result<(), Gone> {
        if messages.is_empty() {
            return Ok(());
        }
        // Should no answer come, the request was sent all the same.
        let parting = Parting { wish, sent: Instant::now(), got: None, told: Told::Nothing };
        for (place, _) in messages {
            self.book.deliveries[*place].parting = Some(parting);
        }
        let receipts: Vec<&str> = messages.iter().map(|(_, receipt)| *receipt).collect();
        let Answered { sent, got, answer } = match wish {
            Wish::Ack => self.consumer.ack(&receipts),
            Wish::Again(_) => self.consumer.nack(&receipts, delay),
            Wish::Reject => self.consumer.reject(&receipts),
        }?;
        for ((place, _), told) in messages.iter().zip(answer) {
            let parting = Parting { wish, sent, got: Some(got), told };
            self.book.deliveries[*place].parting = Some(parting);
        }
        Ok(())
    }

    /// Tries to ack what has run out; nothing of it may succeed. Answers how many were tried.
    pub fn try_stale(&mut self) -> Result<u64, Gone> {
        let now = Instant::now();
        let is_over = |stale: &mut Stale| stale.since < now;
        let over: Vec<Stale> = self.stale.extract_if(.., is_over).collect();
        if over.is_empty() {
            return Ok(0);
        }
        let receipts: Vec<&str> = over.iter().map(|stale| stale.receipt.as_str()).collect();
        let answered = self.consumer.ack(&receipts)?;
        let refused = answered.answer.iter().all(|told| *told == Told::NotHeld);
        assert!(refused, "an ack after its lease: {:?} {over:?}", answered.answer);
        Ok(u64::try_from(over.len()).unwrap())
    }
}
