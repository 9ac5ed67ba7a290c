// franz-go against a broker: `franz HOST:PORT`. With PLAIN set the broker is one that does not delay.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	patience   = 60 * time.Second
	// Longer than a busy machine takes to send what must be written before it is due.
	delayMs = 5000
)

var (
	address string
	admin   *kadm.Client
	begun   = time.Now().UnixNano()
	counter int
)

func fail(reason string, values ...any) {
	fmt.Fprintf(os.Stderr, "FAILED: "+reason+"\n", values...)
	os.Exit(1)
}

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func expect(condition bool, reason string, values ...any) {
	if !condition {
		fail(reason, values...)
	}
}

func until(what string, ask func() bool) {
	end := time.Now().Add(patience)
	for !ask() {
		expect(time.Now().Before(end), "waited too long for %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func limit() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	time.AfterFunc(patience, cancel)
	return ctx
}

func name(kind string) string {
	counter++
	return fmt.Sprintf("franz-%s-%d-%d", kind, begun, counter)
}

func client(options ...kgo.Opt) *kgo.Client {
	options = append([]kgo.Opt{kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner())}, options...)
	made, err := kgo.NewClient(options...)
	must(err, "a client")
	return made
}

func topic(count int32) string {
	made := name("topic")
	_, err := admin.CreateTopic(limit(), count, 1, nil, made)
	must(err, "making a topic")
	return made
}

func count(topic string) int {
	found, err := admin.ListTopics(limit(), topic)
	must(err, "listing")
	return len(found[topic].Partitions)
}

func administer() {
	made := topic(partitions)
	until("the topic", func() bool { return count(made) == partitions })
	_, err := admin.CreateTopic(limit(), 1, 1, nil, made)
	expect(errors.Is(err, kerr.TopicAlreadyExists), "making it twice: %v", err)
	_, err = admin.CreatePartitions(limit(), 1, made)
	must(err, "adding partitions")
	until("the new partition", func() bool { return count(made) == partitions+1 })
	value := "3600000"
	_, err = admin.AlterTopicConfigs(limit(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, made)
	must(err, "changing settings")
	until("the changed setting", func() bool {
		found, err := admin.DescribeTopicConfigs(limit(), made)
		must(err, "describing settings")
		for _, one := range found[0].Configs {
			if one.Key == "retention.ms" {
				return one.MaybeValue() == value
			}
		}
		return false
	})
	_, err = admin.DeleteTopics(limit(), made)
	must(err, "deleting")
	until("the topic to be gone", func() bool {
		all, err := admin.ListTopics(limit())
		must(err, "listing")
		return !all.Has(made)
	})
	fmt.Println("  topics are made, changed, described and deleted")
}

func send(sender *kgo.Client, records ...*kgo.Record) {
	must(sender.ProduceSync(limit(), records...).FirstErr(), "producing")
}

func numbers(topic string, from, to, partitions int, headers []kgo.RecordHeader) (records []*kgo.Record) {
	for number := from; number < to; number++ {
		text := strconv.Itoa(number)
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(number % partitions), Key: []byte(text),
			Value: []byte(text + ":" + strings.Repeat("x", 200)), Headers: headers})
	}
	return records
}

func number(record *kgo.Record) int {
	found, err := strconv.Atoi(strings.Split(string(record.Value), ":")[0])
	must(err, "a number")
	return found
}

func take(reader *kgo.Client, count int) (records []*kgo.Record) {
	until(fmt.Sprintf("%d records", count), func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		fetches := reader.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			expect(errors.Is(err, context.DeadlineExceeded), "reading %s %d: %v", topic, partition, err)
		})
		records = append(records, fetches.Records()...)
		return len(records) >= count
	})
	return records
}

func read(topic string, count int) []*kgo.Record {
	reader := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	return take(reader, count)
}

func compress() {
	headers := []kgo.RecordHeader{{Key: "twice", Value: []byte("first")}, {Key: "twice", Value: []byte("second")},
		{Key: "nothing"}, {Key: "bytes", Value: []byte{0, 255, 128}}, {Key: "größe", Value: []byte("größe")}}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for at, codec := range codecs {
		made := topic(1)
		sender := client(kgo.ProducerBatchCompression(codec))
		send(sender, numbers(made, 0, 200, 1, headers)...)
		sender.Close()
		for wanted, record := range read(made, 200) {
			expect(number(record) == wanted && record.Offset == int64(wanted), "codec %d: %d at %d, wanted %d", at, number(record), record.Offset, wanted)
			expect(reflect.DeepEqual(record.Headers, headers), "codec %d: headers %v", at, record.Headers)
		}
	}
	fmt.Println("  none, gzip, snappy, lz4, zstd: values and headers come back byte for byte")
}

func idempotent() {
	made := topic(partitions)
	sender := client(kgo.ProducerBatchMaxBytes(4000))
	send(sender, numbers(made, 0, 3000, partitions, nil)...)
	sender.Close()
	other := client(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	send(other, numbers(made, 3000, 3003, partitions, nil)...)
	other.Close()
	seen := map[int32][]int{}
	for _, record := range read(made, 3003) {
		seen[record.Partition] = append(seen[record.Partition], number(record))
	}
	for partition, found := range seen {
		for at, number := range found {
			expect(number == int(partition)+at*partitions, "partition %d: %d at place %d", partition, number, at)
		}
	}
	fmt.Println("  an idempotent producer and acks of 1: each record once, in order")
}

func delay() {
	if os.Getenv("PLAIN") != "" {
		return
	}
	made, begun := topic(1), time.Now().UnixMilli()
	headers := []kgo.RecordHeader{{Key: "punctual-delay", Value: []byte(strconv.Itoa(delayMs))}, {Key: "kept", Value: []byte("as it was")}}
	records := append(numbers(made, 0, 3, 1, headers), numbers(made, 3, 4, 1, nil)...)
	sender := client(kgo.ProducerLinger(50 * time.Millisecond))
	send(sender, records...)
	sender.Close()
	for at, record := range records {
		expect(record.Offset == int64(at), "%d was acknowledged at %d", at, record.Offset)
	}
	wanted := []int{3, 0, 1, 2}
	for at, record := range read(made, 4) {
		expect(number(record) == wanted[at] && record.Offset == int64(3+at), "%d at %d", number(record), record.Offset)
		if at == 0 {
			continue
		}
		found := map[string]string{}
		for _, header := range record.Headers {
			found[header.Key] = string(header.Value)
		}
		due, err := strconv.ParseInt(found["punctual-due"], 10, 64)
		must(err, "punctual-due")
		expect(due >= begun+delayMs && time.Now().UnixMilli() >= due, "due %d, sent after %d", due, begun)
		expect(found["punctual-id"] != "" && found["kept"] == "as it was" && found["punctual-delay"] == "", "headers %v", found)
	}
	fmt.Println("  delayed records come, not early, at new offsets, with their headers")
}

func resume() {
	made, group := topic(1), name("group")
	sender := client()
	send(sender, numbers(made, 0, 20, 1, nil)...)
	sender.Close()
	first := member(made, group)
	until("the records", func() bool { return len(first.bodies()) >= 20 })
	_, err := admin.FetchOffsets(limit(), group)
	must(err, "offsets of a group")
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: made, Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "a note"})
	described, err := admin.DescribeGroups(limit(), group)
	must(err, "describing a group")
	expect(described[group].State == "Stable" && len(described[group].Members) == 1, "the group: %v", described[group])
	first.stop()
	must(admin.CommitAllOffsets(limit(), group, offsets), "committing")
	second := member(made, group)
	until("what is left", func() bool { return len(second.bodies()) >= 13 })
	expect(second.bodies()[0] == 7, "resumed at %d", second.bodies()[0])
	second.stop()
	found, err := admin.FetchOffsets(limit(), group)
	must(err, "offsets of a group")
	one, _ := found.Lookup(made, 0)
	expect(one.At == 7 && one.Metadata == "a note", "committed %v", one)
	_, err = admin.DeleteGroup(limit(), group)
	must(err, "deleting a group")
	fmt.Println("  commits are kept with their notes, and reading resumes there")
}

// A member of a group, with a goroutine that polls.
type groupMember struct {
	sync.Mutex
	held    map[int32]bool
	numbers []int
	client  *kgo.Client
	ended   chan struct{}
}

func member(topic, group string) *groupMember {
	made := &groupMember{held: map[int32]bool{}, ended: make(chan struct{})}
	note := func(value bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			made.Lock()
			defer made.Unlock()
			for _, partition := range partitions[topic] {
				if value {
					made.held[partition] = true
				} else {
					delete(made.held, partition)
				}
			}
		}
	}
	made.client = client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(15*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)))
	go func() {
		defer close(made.ended)
		for {
			fetches := made.client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			made.Lock()
			fetches.EachRecord(func(record *kgo.Record) { made.numbers = append(made.numbers, number(record)) })
			made.Unlock()
		}
	}()
	return made
}

func (m *groupMember) bodies() []int {
	m.Lock()
	defer m.Unlock()
	return append([]int{}, m.numbers...)
}

func (m *groupMember) holds() int {
	m.Lock()
	defer m.Unlock()
	return len(m.held)
}

func (m *groupMember) stop() {
	m.client.Close()
	<-m.ended
}

func rebalance() {
	made, group := topic(partitions), name("group")
	first := member(made, group)
	until("the first member", func() bool { return first.holds() == partitions })
	second := member(made, group)
	until("both members to share", func() bool {
		return first.holds() > 0 && second.holds() > 0 && first.holds()+second.holds() == partitions
	})
	second.stop()
	until("the partitions of the one that left", func() bool { return first.holds() == partitions })
	self, err := os.Executable()
	must(err, "this program")
	other := exec.Command(self, address, "member", made, group)
	said, err := other.StdoutPipe()
	must(err, "its output")
	must(other.Start(), "another process")
	line, err := bufio.NewReader(said).ReadString('\n')
	expect(line == "assigned\n", "the other member ended instead of joining: %v", err)
	must(other.Process.Kill(), "killing it")
	_ = other.Wait()
	until("the partitions of the one that crashed", func() bool { return first.holds() == partitions })
	sender := client()
	send(sender, numbers(made, 0, 30, partitions, nil)...)
	until("all records", func() bool { return len(first.bodies()) >= 30 })
	sum := 0
	for _, number := range first.bodies() {
		sum += number
	}
	expect(len(first.bodies()) == 30 && sum == 435, "the last member got %v", first.bodies())
	first.stop()
	fmt.Println("  cooperative: members join, leave and crash")
}

func main() {
	address = os.Args[1]
	if len(os.Args) > 2 {
		one := member(os.Args[3], os.Args[4])
		until("an assignment", func() bool { return one.holds() > 0 })
		fmt.Println("assigned")
		<-one.ended
		return
	}
	admin = kadm.NewClient(client())
	for _, step := range []func(){administer, compress, idempotent, delay, resume, rebalance} {
		step()
	}
	fmt.Println("all is well")
}
