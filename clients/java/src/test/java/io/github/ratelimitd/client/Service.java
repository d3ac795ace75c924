package io.github.ratelimitd.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

/** A ratelimitd of the suite's policies, which a test may kill. */
final class Service implements AutoCloseable {
    /** The root of the repository. */
    static final Path ROOT = root();

    private static final Path SUITE = ROOT.resolve("clients/conformance");
    private static final String BINARY =
            System.getenv().getOrDefault("RATELIMITD_BIN", ROOT.resolve("bin/ratelimitd").toString());

    private final List<String> flags;
    private Process process;
    private final String url;

    Service(String... flags) {
        this.flags = List.of(flags);
        this.url = serve("127.0.0.1:0");
    }

    static String cases(String file) {
        try {
            return Files.readString(SUITE.resolve("cases").resolve(file + ".json"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    String url() {
        return url;
    }

    /** Kills the process, like a crash. */
    void kill() {
        process.destroyForcibly().onExit().join();
    }

    /** Starts it again at the same address. */
    void restart() {
        serve(url.replaceFirst("https?://", ""));
    }

    /** Stops the process, and returns once it has stopped: its threads run for a while after the signal. */
    void pause() {
        signal("STOP");
        while (!allStopped()) {
            LockSupport.parkNanos(1_000_000);
        }
    }

    void resume() {
        signal("CONT");
    }

    @Override
    public void close() {
        kill();
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().onExit().join();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Reports whether all threads of the process are stopped. */
    private boolean allStopped() {
        try (Stream<Path> threads = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
            return threads.allMatch(Service::isStopped);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static boolean isStopped(Path thread) {
        try {
            return Files.readString(thread.resolve("stat")).contains(") T ");
        } catch (IOException e) {
            return false; // it has ended
        }
    }

    private String serve(String address) {
        List<String> command = new ArrayList<>(List.of(BINARY, "serve", "--listen", address));
        command.addAll(List.of("--policies", SUITE.resolve("policies.yaml").toString()));
        command.addAll(flags);
        try {
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
            BufferedReader out =
                    new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = String.valueOf(out.readLine());
            if (!line.startsWith("listening on http")) {
                throw new IllegalStateException("ratelimitd said " + line);
            }
            return line.substring("listening on ".length()).strip();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Path root() {
        Path here = Path.of("").toAbsolutePath();
        while (!Files.exists(here.resolve("clients/conformance"))) {
            here = here.getParent();
        }
        return here;
    }
}
