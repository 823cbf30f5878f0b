import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the records of each key in tumbling windows, exactly once, and writes the counts to a topic. Payloads are never looked at.
 *
 * <p>Rounds in one JVM, so that the later ones run compiled code. Each line of standard input begins one, named by it, which prints
 * "begun" at its first record and "done" after its last commit.
 */
public final class CountPerWindow {
  private static final Duration WINDOW = Duration.ofSeconds(1);

  public static void main(String[] args) throws IOException, InterruptedException {
    String brokers = args[0], input = args[1], output = args[2], state = args[3];
    long records = Long.parseLong(args[4]);
    int threads = Integer.parseInt(args[5]);
    BufferedReader names = new BufferedReader(new InputStreamReader(System.in));
    for (String name = names.readLine(); name != null; name = names.readLine()) {
      round(brokers, input, output, state, records, name, threads);
    }
  }

  private static void round(
      String brokers, String input, String output, String state, long records, String id, int threads)
      throws InterruptedException {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, threads);
    // Transactions of about as many records as the others', where the default is one every 100 ms.
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 250);
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");

    AtomicBoolean begun = new AtomicBoolean();
    AtomicLong seen = new AtomicLong();
    CountDownLatch all = new CountDownLatch(1);
    var store = Stores.inMemoryWindowStore("counts", WINDOW.multipliedBy(2), WINDOW, false);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .peek((key, value) -> {
          if (!begun.get() && begun.compareAndSet(false, true)) {
            System.out.println("begun");
          }
          if (seen.incrementAndGet() == records) {
            all.countDown();
          }
        })
        .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
        .count(Materialized.<byte[], Long>as(store).withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long()))
        .toStream((window, count) -> window.key())
        .to(output, Produced.with(Serdes.ByteArray(), Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.start();
    all.await();
    streams.close();
    System.out.println("done");
  }
}
