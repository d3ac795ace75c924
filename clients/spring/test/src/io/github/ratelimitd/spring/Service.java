package io.github.ratelimitd.spring;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.springframework.boot.json.JsonParserFactory;

/** A ratelimitd of the suite's policies, in a process of its own. */
final class Service implements AutoCloseable {
    /** The root of the repository. */
    static final Path ROOT = root();

    private static final Path SUITE = ROOT.resolve("clients/conformance");
    private static final String BINARY =
            System.getenv().getOrDefault("RATELIMITD_BIN", ROOT.resolve("bin/ratelimitd").toString());

    final String url;
    private final Process process;

    Service() {
        try {
            process = new ProcessBuilder(
                            BINARY, "serve", "--listen", "127.0.0.1:0", "--policies", SUITE.resolve("policies.yaml").toString())
                    .redirectError(ProcessBuilder.Redirect.DISCARD)
                    .start();
            BufferedReader out =
                    new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = String.valueOf(out.readLine());
            if (!line.startsWith("listening on http")) {
                throw new IllegalStateException("ratelimitd said " + line);
            }
            url = line.substring("listening on ".length()).strip();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Returns the list of objects that a file of the suite has. */
    static List<Map<String, Object>> read(String file) {
        try {
            String json = Files.readString(SUITE.resolve(file));
            return JsonParserFactory.getJsonParser().parseList(json).stream().map(Service::mapOf).toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> mapOf(Object value) {
        return value == null ? Map.of() : (Map<String, Object>) value;
    }

    @Override
    public void close() {
        process.destroyForcibly().onExit().join();
    }

    private static Path root() {
        Path here = Path.of("").toAbsolutePath();
        while (!Files.exists(here.resolve("clients/conformance"))) {
            here = here.getParent();
        }
        return here;
    }
}
