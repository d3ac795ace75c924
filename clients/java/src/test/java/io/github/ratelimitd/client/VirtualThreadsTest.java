package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Virtual threads, from Java 21 on. pom.xml makes all of them share one platform thread. */
class VirtualThreadsTest {
    @Test
    void callsThatWaitHoldUpNoOtherThread() throws Exception {
        CountDownLatch over = new CountDownLatch(1);
        Scripted.Answer late = (request, out) -> {
            over.await();
            Scripted.allow().to(request, out);
        };
        ExecutorService virtual =
                (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        try (Scripted service = new Scripted(late);
                RatelimitdClient client = RatelimitdClient.builder(service.url())
                        .timeout(Duration.ofMinutes(5))
                        .logger(new Quiet())
                        .build()) {
            List<Future<Boolean>> calls = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                Demand demand = new Demand("sms-send", "a" + i);
                calls.add(virtual.submit(() -> client.take(demand).allowed()));
                calls.add(virtual.submit(() -> client.wait(Duration.ofMinutes(5), demand).allowed()));
            }
            service.await(1);
            virtual.submit(over::countDown).get(60, TimeUnit.SECONDS);
            for (Future<Boolean> call : calls) {
                assertTrue(call.get(60, TimeUnit.SECONDS));
            }
        } finally {
            virtual.shutdownNow();
        }
    }
}
