package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Services that fail in the middle, are slow, dead, restarted or paused. */
@Timeout(60)
class ResilienceTest {
    private static final Demand DEMAND = new Demand("sms-send", "+4915112345678");
    private static final Map<String, String> JSON = Map.of("Content-Type", "application/json");
    private static final Map<String, String> LINES = Map.of("Content-Type", "application/x-ndjson");

    /** Ends the connection in the middle of the answer. */
    private static final Scripted.Answer TRUNCATED = (request, out) -> {
        Scripted.writeHead(out, 200, JSON, Scripted.DECISION.length());
        out.write(Scripted.DECISION.substring(0, 40).getBytes(StandardCharsets.UTF_8));
        out.flush();
        throw new IOException("cut");
    };

    private static RatelimitdClientBuilder clientOf(String... urls) {
        return RatelimitdClient.builder(urls).logger(new Quiet()).timeout(Duration.ofSeconds(30));
    }

    @Test
    void anAnswerThatIsCutMayCountAndIsNotAskedForAgainWithoutAKey() {
        try (Scripted service = new Scripted(TRUNCATED);
                RatelimitdClient client = clientOf(service.url()).build()) {
            UnavailableException error = assertThrows(UnavailableException.class, () -> client.take(DEMAND));
            assertEquals(Optional.of(Recorded.UNKNOWN), error.recorded());
            assertFalse(error.getMessage().contains("49151"), error.getMessage());
            assertEquals(1, service.requests.size());
        }
    }

    @Test
    void anAnswerThatIsCutIsAskedForAgainWithTheSameKey() {
        try (Scripted service = new Scripted(TRUNCATED, Scripted.CUT, Scripted.allow());
                RatelimitdClient client = clientOf(service.url()).retries(2).build()) {
            assertTrue(client.take(DEMAND).allowed());
            List<String> keys =
                    service.requests.stream().map(r -> r.headers().get("idempotency-key")).toList();
            assertEquals(3, keys.size());
            assertEquals(1, keys.stream().distinct().count(), keys.toString());
            assertFalse(keys.get(0).isEmpty());
        }
    }

    @Test
    void ofABatchThatIsCutOnlyTheCallsWithoutAnswerAreAskedAgain() {
        Scripted.Answer oneLine = (request, out) -> {
            Scripted.writeHead(out, 200, LINES, 100_000);
            String line = "{\"index\":1,\"status\":200," + Scripted.DECISION.substring(1) + "\n{\"index\":0,";
            out.write(line.getBytes(StandardCharsets.UTF_8));
            out.flush();
            throw new IOException("cut");
        };
        try (Scripted service = new Scripted(oneLine, Scripted.allow());
                RatelimitdClient client = clientOf(service.url()).retries(1).build()) {
            List<BatchResult> results =
                    client.batch(List.of(Call.take(new Demand("sms-send", "a")), Call.take(new Demand("sms-send", "b"))));
            results.forEach(result -> assertTrue(result.orThrow().orElseThrow().allowed()));
            assertEquals(2, service.requests.size());
            assertEquals("/v1/take", service.requests.get(1).path());
            assertTrue(service.requests.get(1).body().contains("\"a\""), service.requests.get(1).body());
        }
    }

    @Test
    void linesThatEndTooEarlyAreNoAnswer() {
        Scripted.Answer none = Scripted.answer(200, LINES, "");
        try (Scripted service = new Scripted(none);
                RatelimitdClient client = clientOf(service.url()).build()) {
            BatchResult result = client.batch(List.of(Call.take(DEMAND), Call.check(DEMAND))).get(0);
            assertEquals(Optional.of(Recorded.UNKNOWN), result.error().orElseThrow().recorded());
        }
    }

    @Test
    void slowAnswersEndInTimeBeTheHeadOrTheBodySlow() {
        Scripted.Answer headOnly = (request, out) -> {
            Scripted.writeHead(out, 200, JSON, Scripted.DECISION.length());
            out.flush();
            Scripted.SILENT.to(request, out);
        };
        for (Scripted.Answer slow : List.of(Scripted.SILENT, headOnly)) {
            try (Scripted service = new Scripted(slow);
                    RatelimitdClient client = clientOf(service.url()).timeout(Duration.ofMillis(200)).retries(3).build()) {
                long began = System.nanoTime();
                UnavailableException error = assertThrows(UnavailableException.class, () -> client.take(DEMAND));
                assertTrue(System.nanoTime() - began >= Duration.ofMillis(200).toNanos());
                assertEquals(Optional.of(Recorded.UNKNOWN), error.recorded());
                assertEquals(1, service.requests.size());
            }
        }
    }

    @Test
    void aSlowAnswerHoldsUpNoOtherCall() throws InterruptedException {
        CountDownLatch over = new CountDownLatch(1);
        Scripted.Answer slow = (request, out) -> {
            over.await();
            Scripted.allow().to(request, out);
        };
        try (Scripted service = new Scripted(slow, slow, Scripted.allow());
                RatelimitdClient client = clientOf(service.url()).build()) {
            List<CompletableFuture<Decision>> first =
                    List.of(client.takeAsync(new Demand("sms-send", "a")), client.takeAsync(new Demand("sms-send", "b")));
            service.await(2);
            assertTrue(client.take(DEMAND).allowed());
            first.forEach(call -> assertFalse(call.isDone()));
            over.countDown();
            first.forEach(call -> assertTrue(call.join().allowed()));
        }
    }

    @Test
    void a503IsWaitedForAsLongAsItSays() {
        try (Scripted service = new Scripted(Scripted.problem(503, "no", "Retry-After", "1"), Scripted.allow());
                RatelimitdClient client = clientOf(service.url()).retries(1).build()) {
            long began = System.nanoTime();
            assertTrue(client.take(DEMAND).allowed());
            assertTrue(System.nanoTime() - began >= Duration.ofSeconds(1).toNanos());
        }
    }

    @Test
    void a503ThatSaysLongerThanTheCallHasIsNotWaitedFor() {
        try (Scripted service = new Scripted(Scripted.problem(503, "no", "Retry-After", "60"));
                RatelimitdClient client = clientOf(service.url()).retries(5).build()) {
            UnavailableException error = assertThrows(UnavailableException.class, () -> client.take(DEMAND));
            assertEquals(503, error.problem().orElseThrow().status());
            assertEquals(Optional.of(Recorded.NO), error.recorded());
            assertEquals(1, service.requests.size());
        }
    }

    @Test
    void aServiceThatRestartsDecidesAgain() {
        try (Service service = new Service();
                RatelimitdClient client = clientOf(service.url()).retries(100).maxFailures(1000).build()) {
            assertEquals(1, client.take(DEMAND).used());
            service.kill();
            CompletableFuture<Decision> meanwhile = client.takeAsync(DEMAND);
            service.restart();
            Decision decision = meanwhile.join();
            assertTrue(decision.allowed());
            assertFalse(decision.degraded());
        }
    }

    @Test
    void aServiceThatIsGoneCostsCallsNothingUntilAProbeFindsIt() {
        Quiet logger = new Quiet();
        try (Service service = new Service();
                RatelimitdClient client = clientOf(service.url())
                        .logger(logger)
                        .maxFailures(2)
                        .probeInterval(Duration.ofMillis(1))
                        .build()) {
            service.kill();
            for (int i = 0; i < 20; i++) {
                UnavailableException error = assertThrows(UnavailableException.class, () -> client.take(DEMAND));
                assertEquals(Optional.of(Recorded.NO), error.recorded());
            }
            service.restart();
            Decision decision = null;
            while (decision == null) {
                try {
                    decision = client.take(DEMAND);
                } catch (UnavailableException e) {
                    Thread.yield();
                }
            }
            assertTrue(decision.allowed());
            assertEquals(
                    List.of("ERROR ratelimitd does not answer: calls give what onUnavailable says", "INFO ratelimitd answers again"),
                    logger.lines);
        }
    }

    @Test
    void aServiceThatIsPausedIsLateAndDecidesAgain() {
        try (Service service = new Service();
                RatelimitdClient client = clientOf(service.url()).build();
                RatelimitdClient hasty = clientOf(service.url()).timeout(Duration.ofMillis(300)).build()) {
            assertEquals(1, client.take(DEMAND).used());
            service.pause();
            UnavailableException error = assertThrows(UnavailableException.class, () -> hasty.take(DEMAND));
            assertEquals(Optional.of(Recorded.UNKNOWN), error.recorded());
            service.resume();
            long used = client.take(DEMAND).used();
            assertTrue(used == 2 || used == 3, "used " + used);
        }
    }

    @Test
    void ofSeveralAddressesADeadOneCostsNoCall() {
        Scripted dead = new Scripted(Scripted.CUT);
        dead.close();
        try (Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client = clientOf(dead.url(), dead.url(), service.url()).build()) {
            for (int i = 0; i < 10; i++) {
                assertTrue(client.take(DEMAND).allowed());
            }
            client.confirmAsync("r").exceptionally(e -> null).join();
            assertEquals(11, service.requests.size());
        }
    }

    @Test
    void whereAllAddressesAreDeadNothingCounts() {
        Scripted dead = new Scripted(Scripted.CUT);
        dead.close();
        try (RatelimitdClient client = clientOf(dead.url(), dead.url()).build()) {
            UnavailableException error = assertThrows(UnavailableException.class, () -> client.take(DEMAND));
            assertEquals(Optional.of(Recorded.NO), error.recorded());
            String address = dead.url().replace("http://", "");
            assertEquals(
                    "ratelimitd: take: no answer: no connection to " + address + ", ConnectException", error.getMessage());
        }
    }

    @Test
    void anAddressThatFailsIsLeftForTheNextOne() {
        List<Scripted.Answer> failures = List.of(
                Scripted.CUT, Scripted.SILENT, Scripted.problem(503, "no"), Scripted.answer(502, Map.of(), "Bad Gateway"));
        for (Scripted.Answer failure : failures) {
            try (Scripted broken = new Scripted(failure);
                    Scripted service = new Scripted(Scripted.allow());
                    RatelimitdClient client =
                            clientOf(broken.url(), service.url()).timeout(Duration.ofSeconds(3)).build()) {
                assertThrows(UnavailableException.class, () -> client.take(DEMAND));
                assertTrue(client.take(DEMAND).allowed());
                assertTrue(client.take(DEMAND).allowed());
                assertEquals(1, broken.requests.size());
            }
        }
    }

    @Test
    void aRetryGoesToTheNextAddressWithTheSameKey() {
        try (Scripted broken = new Scripted(Scripted.CUT);
                Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client = clientOf(broken.url(), service.url()).retries(1).build()) {
            assertTrue(client.take(DEMAND).allowed());
            assertEquals(
                    broken.requests.get(0).headers().get("idempotency-key"),
                    service.requests.get(0).headers().get("idempotency-key"));
        }
    }

    @Test
    void anInterruptEndsACallAndStaysSet() throws InterruptedException {
        AtomicReference<InterruptedCallException> error = new AtomicReference<>();
        AtomicReference<Boolean> interrupted = new AtomicReference<>();
        try (Scripted service = new Scripted(Scripted.SILENT);
                RatelimitdClient client = clientOf(service.url()).build()) {
            Thread caller = new Thread(() -> {
                error.set(assertThrows(InterruptedCallException.class, () -> client.take(DEMAND)));
                interrupted.set(Thread.currentThread().isInterrupted());
                assertThrows(InterruptedCallException.class, () -> client.take(DEMAND), "and none is sent");
            });
            caller.start();
            service.await(1);
            caller.interrupt();
            caller.join();
            assertEquals(Optional.of(Recorded.UNKNOWN), error.get().recorded());
            assertTrue(interrupted.get());
            assertEquals(1, service.requests.size());
        }
    }

    @Test
    void aFutureThatIsCancelledEndsItsRequest() throws InterruptedException {
        CountDownLatch ended = new CountDownLatch(1);
        Scripted.Answer untilEnd = (request, out) -> {
            try {
                Scripted.writeHead(out, 200, JSON, 1 << 30);
                while (true) { // until the other end closes the connection
                    out.write(' ');
                    Thread.yield();
                }
            } finally {
                ended.countDown();
            }
        };
        try (Scripted service = new Scripted(untilEnd);
                RatelimitdClient client = clientOf(service.url()).build()) {
            CompletableFuture<Decision> call = client.takeAsync(DEMAND);
            service.await(1);
            assertTrue(call.cancel(true));
            assertThrows(CancellationException.class, call::join);
            ended.await();
        }
    }

    @Test
    void aDependentThatBlocksHoldsUpNoOtherCall() {
        CountDownLatch over = new CountDownLatch(1);
        try (Scripted service = new Scripted(Scripted.allow());
                RatelimitdClient client = clientOf(service.url()).build()) {
            List<CompletableFuture<Boolean>> blocked = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                blocked.add(client.takeAsync(new Demand("sms-send", "a" + i)).thenApply(decision -> {
                    try {
                        over.await();
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                    return decision.allowed();
                }));
            }
            assertTrue(client.take(DEMAND).allowed());
            over.countDown();
            blocked.forEach(call -> assertTrue(call.join()));
        }
    }

    @Test
    void failingOpenIsNeverSilent() {
        Scripted dead = new Scripted(Scripted.CUT);
        dead.close();
        Quiet logger = new Quiet();
        List<String> told = new ArrayList<>();
        try (RatelimitdClient client = clientOf(dead.url())
                .logger(logger)
                .maxFailures(1000)
                .onUnavailable(OnUnavailable.FAIL_OPEN)
                .onFailedOpen((call, error) -> {
                    told.add(call.demands().get(0).identifier() + " " + error.op());
                    throw new IllegalStateException("the hook is broken");
                })
                .build()) {
            for (int i = 0; i < 3; i++) {
                Decision decision = client.take(DEMAND);
                assertTrue(decision.allowed() && decision.degraded());
                assertEquals(Optional.of(Recorded.NO), decision.recorded());
            }
            assertEquals(3, client.failedOpen());
            assertEquals(List.of("+4915112345678 take", "+4915112345678 take", "+4915112345678 take"), told);
            assertEquals(3, logger.lines.stream().filter(line -> line.contains("onFailedOpen failed")).count());
            long lines = logger.lines.stream().filter(line -> line.contains("allowed without a limit")).count();
            assertTrue(lines >= 1 && lines < 3, "one a second: " + logger.lines);
            logger.lines.forEach(line -> assertFalse(line.contains("49151"), line));
        }
    }

    @Test
    void theStackOfAnExceptionIsThatOfItsCaller() {
        Scripted dead = new Scripted(Scripted.CUT);
        dead.close();
        try (RatelimitdClient client = clientOf(dead.url()).build()) {
            CallException error = assertThrows(CallException.class, () -> client.take(DEMAND));
            String here = getClass().getName();
            assertTrue(List.of(error.getStackTrace()).stream().anyMatch(frame -> frame.getClassName().equals(here)));
        }
    }
}
