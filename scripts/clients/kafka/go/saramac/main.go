// sarama against a broker: `saramac HOST:PORT`. With PLAIN set the broker is one that does not delay.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	patience   = 60 * time.Second
	// Longer than a busy machine takes to send what must be written before it is due.
	delayMs = 5000
)

var (
	address string
	admin   sarama.ClusterAdmin
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

func name(kind string) string {
	counter++
	return fmt.Sprintf("sarama-%s-%d-%d", kind, begun, counter)
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Session.Timeout = 15 * time.Second
	made.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return made
}

func topic(count int32) string {
	made := name("topic")
	must(admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1}, false), "making a topic")
	return made
}

func administer() {
	made := topic(partitions)
	until("the topic", func() bool {
		all, err := admin.ListTopics()
		must(err, "listing")
		return all[made].NumPartitions == partitions
	})
	err := admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	expect(errors.Is(err, sarama.ErrTopicAlreadyExists), "making it twice: %v", err)
	must(admin.CreatePartitions(made, partitions+1, nil, false), "adding partitions")
	value := "3600000"
	change := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	must(admin.IncrementalAlterConfig(sarama.TopicResource, made, change, false), "changing settings")
	until("the changed setting", func() bool {
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: made})
		must(err, "describing settings")
		for _, one := range found {
			if one.Name == "retention.ms" {
				return one.Value == value
			}
		}
		return false
	})
	brokers, _, err := admin.DescribeCluster()
	must(err, "describing the cluster")
	expect(len(brokers) == 1, "%d brokers", len(brokers))
	must(admin.DeleteTopic(made), "deleting")
	fmt.Println("  topics are made, changed, described and deleted")
}

func send(settings *sarama.Config, messages ...*sarama.ProducerMessage) {
	producer, err := sarama.NewSyncProducer([]string{address}, settings)
	must(err, "a producer")
	must(producer.SendMessages(messages), "producing")
	must(producer.Close(), "closing a producer")
}

func numbers(topic string, from, to, partitions int, headers []sarama.RecordHeader) (messages []*sarama.ProducerMessage) {
	for number := from; number < to; number++ {
		text := strconv.Itoa(number)
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Partition: int32(number % partitions), Key: sarama.StringEncoder(text),
			Value: sarama.StringEncoder(text + ":" + strings.Repeat("x", 200)), Headers: headers})
	}
	return messages
}

func number(message *sarama.ConsumerMessage) int {
	found, err := strconv.Atoi(strings.Split(string(message.Value), ":")[0])
	must(err, "a number")
	return found
}

func read(topic string, partition int32, count int) (messages []*sarama.ConsumerMessage) {
	consumer, err := sarama.NewConsumer([]string{address}, config())
	must(err, "a consumer")
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	must(err, "a partition")
	for len(messages) < count {
		select {
		case message := <-reader.Messages():
			messages = append(messages, message)
		case <-time.After(patience):
			fail("waited too long for %d records, got %d", count, len(messages))
		}
	}
	return messages
}

func compress() {
	headers := []sarama.RecordHeader{{Key: []byte("twice"), Value: []byte("first")}, {Key: []byte("twice"), Value: []byte("second")},
		{Key: []byte("bytes"), Value: []byte{0, 255, 128}}}
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, codec := range codecs {
		made, settings := topic(1), config()
		settings.Producer.Compression = codec
		send(settings, numbers(made, 0, 200, 1, headers)...)
		for wanted, message := range read(made, 0, 200) {
			expect(number(message) == wanted && message.Offset == int64(wanted), "%s: %d at %d, wanted %d", codec, number(message), message.Offset, wanted)
			expect(len(message.Headers) == len(headers), "%s: %d headers", codec, len(message.Headers))
			for at, header := range message.Headers {
				expect(string(header.Key) == string(headers[at].Key) && string(header.Value) == string(headers[at].Value), "%s: header %s", codec, header.Key)
			}
		}
	}
	fmt.Println("  none, gzip, snappy, lz4, zstd: values and headers come back byte for byte")
}

func idempotent() {
	made, settings := topic(1), config()
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Flush.MaxMessages = 50
	send(settings, numbers(made, 0, 1000, 1, nil)...)
	other := config()
	other.Producer.RequiredAcks = sarama.WaitForLocal
	send(other, numbers(made, 1000, 1003, 1, nil)...)
	for wanted, message := range read(made, 0, 1003) {
		expect(number(message) == wanted, "%d, wanted %d", number(message), wanted)
	}
	fmt.Println("  an idempotent producer and acks of 1: each record once, in order")
}

func delay() {
	if os.Getenv("PLAIN") != "" {
		return
	}
	made, begun := topic(1), time.Now().UnixMilli()
	headers := []sarama.RecordHeader{{Key: []byte("punctual-delay"), Value: []byte(strconv.Itoa(delayMs))}, {Key: []byte("kept"), Value: []byte("as it was")}}
	messages := append(numbers(made, 0, 3, 1, headers), numbers(made, 3, 4, 1, nil)...)
	send(config(), messages...)
	for at, message := range messages {
		expect(message.Offset == int64(at), "%d was acknowledged at %d", at, message.Offset)
	}
	wanted := []int{3, 0, 1, 2}
	for at, message := range read(made, 0, 4) {
		expect(number(message) == wanted[at] && message.Offset == int64(3+at), "%d at %d", number(message), message.Offset)
		if at == 0 {
			continue
		}
		found := map[string]string{}
		for _, header := range message.Headers {
			found[string(header.Key)] = string(header.Value)
		}
		due, err := strconv.ParseInt(found["punctual-due"], 10, 64)
		must(err, "punctual-due")
		expect(due >= begun+delayMs && time.Now().UnixMilli() >= due, "due %d, sent after %d", due, begun)
		expect(found["punctual-id"] != "" && found["kept"] == "as it was" && found["punctual-delay"] == "", "headers %v", found)
	}
	fmt.Println("  delayed records come, not early, at new offsets, with their headers")
}

// A member of a group.
type member struct {
	sync.Mutex
	held    int
	numbers []int
	commit  int64
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}
}

func join(topic, group string) *member {
	made := &member{ended: make(chan struct{})}
	joined, err := sarama.NewConsumerGroup([]string{address}, group, config())
	must(err, "a member")
	made.group = joined
	ctx, cancel := context.WithCancel(context.Background())
	made.cancel = cancel
	go func() {
		defer close(made.ended)
		for ctx.Err() == nil {
			if err := joined.Consume(ctx, []string{topic}, made); err != nil && ctx.Err() == nil {
				fail("a member was told %v", err)
			}
		}
	}()
	return made
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.held = 0
	for _, partitions := range session.Claims() {
		m.held += len(partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.held = 0
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.Lock()
		m.numbers = append(m.numbers, number(message))
		if message.Offset+1 == m.commit {
			session.MarkOffset(message.Topic, message.Partition, m.commit, "a note")
			session.Commit()
		}
		m.Unlock()
	}
	return nil
}

func (m *member) bodies() []int {
	m.Lock()
	defer m.Unlock()
	return append([]int{}, m.numbers...)
}

func (m *member) holds() int {
	m.Lock()
	defer m.Unlock()
	return m.held
}

func (m *member) stop() {
	m.cancel()
	<-m.ended
	must(m.group.Close(), "leaving a group")
}

func resume() {
	made, group := topic(1), name("group")
	send(config(), numbers(made, 0, 20, 1, nil)...)
	first := join(made, group)
	first.Lock()
	first.commit = 7
	first.Unlock()
	until("the records", func() bool { return len(first.bodies()) >= 20 })
	described, err := admin.DescribeConsumerGroups([]string{group})
	must(err, "describing a group")
	expect(described[0].State == "Stable" && len(described[0].Members) == 1, "the group is %s", described[0].State)
	first.stop()
	second := join(made, group)
	until("what is left", func() bool { return len(second.bodies()) >= 13 })
	expect(second.bodies()[0] == 7, "resumed at %d", second.bodies()[0])
	second.stop()
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{made: {0}})
	must(err, "offsets of a group")
	block := offsets.GetBlock(made, 0)
	expect(block.Offset == 7 && block.Metadata == "a note", "committed %d %q", block.Offset, block.Metadata)
	groups, err := admin.ListConsumerGroups()
	must(err, "listing groups")
	_, listed := groups[group]
	expect(listed, "the group is not listed")
	must(admin.DeleteConsumerGroup(group), "deleting a group")
	fmt.Println("  commits are kept with their notes, and reading resumes there")
}

func rebalance() {
	made, group := topic(partitions), name("group")
	first := join(made, group)
	until("the first member", func() bool { return first.holds() == partitions })
	second := join(made, group)
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
	send(config(), numbers(made, 0, 30, partitions, nil)...)
	until("all records", func() bool { return len(first.bodies()) >= 30 })
	sum := 0
	for _, number := range first.bodies() {
		sum += number
	}
	expect(len(first.bodies()) == 30 && sum == 435, "the last member got %v", first.bodies())
	first.stop()
	fmt.Println("  members join, leave and crash")
}

func main() {
	address = os.Args[1]
	if len(os.Args) > 2 {
		one := join(os.Args[3], os.Args[4])
		until("an assignment", func() bool { return one.holds() > 0 })
		fmt.Println("assigned")
		<-one.ended
		return
	}
	made, err := sarama.NewClusterAdmin([]string{address}, config())
	must(err, "an administrator")
	admin = made
	for _, step := range []func(){administer, compress, idempotent, delay, resume, rebalance} {
		step()
	}
	fmt.Println("all is well")
}
