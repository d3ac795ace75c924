package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Names of services. pom.xml makes Java read their addresses from a file, each time, instead of DNS. */
class NamesTest {
    private static final Path NAMES = Path.of(System.getProperty("jdk.net.hosts.file"));
    private static final Demand DEMAND = new Demand("sms-send", "a");

    @BeforeEach
    void forget() throws IOException {
        Files.writeString(NAMES, "");
    }

    @Test
    void aNameThatMovesIsFollowedByTheNextCall() throws IOException {
        try (Scripted old = new Scripted(Scripted.allow())) {
            int port = URI.create(old.url()).getPort();
            try (Scripted current = new Scripted("127.0.0.2", port, Scripted.allow());
                    RatelimitdClient client = clientOf("http://moves.test:" + port)) {
                Files.writeString(NAMES, "127.0.0.1 moves.test\n");
                assertTrue(client.take(DEMAND).allowed());
                assertTrue(client.take(DEMAND).allowed());
                Files.writeString(NAMES, "127.0.0.2 moves.test\n");
                assertTrue(client.take(DEMAND).allowed());
                assertEquals(2, old.requests.size());
                assertEquals(1, current.requests.size(), "a connection to the old address is kept, but not used");
            }
        }
    }

    @Test
    void aNameWithoutAnAddressIsTold() {
        try (RatelimitdClient client = clientOf("http://none.test:8080")) {
            UnavailableException error = assertThrows(UnavailableException.class, () -> client.confirm("r"));
            assertEquals(Optional.of(Recorded.YES), error.recorded());
            assertEquals(
                    "ratelimitd: confirm: no answer: no connection to none.test:8080, UnresolvedAddressException",
                    error.getMessage());
        }
    }

    private static RatelimitdClient clientOf(String url) {
        return RatelimitdClient.builder(url).timeout(Duration.ofSeconds(60)).logger(new Quiet()).build();
    }
}
