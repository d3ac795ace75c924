package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that must agree. */
class ProjectTest {
    private static final Path CLIENT = Service.ROOT.resolve("clients/java");

    @TempDir
    Path dir;

    @Test
    void theVersionIsThatOfTheNewestRelease() throws Exception {
        String changelog = Files.readString(Service.ROOT.resolve("CHANGELOG.md"));
        Matcher release = Pattern.compile("(?m)^## (\\d+\\.\\d+\\.\\d+)\\b").matcher(changelog);
        assertTrue(release.find(), "CHANGELOG.md has no release");
        String pom = Files.readString(CLIENT.resolve("pom.xml"));
        Matcher version = Pattern.compile("<version>(.*?)</version>").matcher(pom);
        assertTrue(version.find());
        assertEquals(release.group(1), version.group(1), "<version> of pom.xml");
        String dependency = "<version>" + release.group(1) + "</version>";
        assertTrue(Files.readString(CLIENT.resolve("README.md")).contains(dependency), "README.md shows another version");
    }

    /** A virtual thread that waits within a monitor keeps its carrier thread, before Java 24. */
    @Test
    void nothingWaitsWithinAMonitor() throws Exception {
        try (Stream<Path> files = Files.walk(CLIENT.resolve("src/main/java"))) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                assertFalse(Files.readString(file).contains("synchronized"), file.toString());
            }
        }
    }

    @Test
    void theProgramOfTheReadmeRuns() throws Exception {
        String readme = Files.readString(CLIENT.resolve("README.md"));
        Matcher block = Pattern.compile("(?s)```java\n(.*?public class (\\w+).*?)```").matcher(readme);
        assertTrue(block.find(), "README.md has no program");
        Path source = dir.resolve(block.group(2) + ".java");
        Files.writeString(source, block.group(1));
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        String classes = Path.of(RatelimitdClient.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        int code = compiler.run(null, null, errors, "-Xlint:all", "-Werror", "-cp", classes, "-d", dir.toString(), source.toString());
        assertEquals(0, code, errors.toString(StandardCharsets.UTF_8));
        assertEquals(
                List.of("the code is sent", "the code is sent", "the code is sent", "wait for 3600 seconds"),
                run(block.group(2)));
    }

    private List<String> run(String program) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        PrintStream before = System.out;
        try (Service service = new Service();
                URLClassLoader loader = new URLClassLoader(new URL[] {dir.toUri().toURL()}, getClass().getClassLoader())) {
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            for (int i = 0; i < 4; i++) {
                loader.loadClass(program).getMethod("main", String[].class)
                        .invoke(null, (Object) new String[] {service.url(), "+4915112345678"});
            }
        } finally {
            System.setOut(before);
        }
        return out.toString(StandardCharsets.UTF_8).lines().toList();
    }
}
