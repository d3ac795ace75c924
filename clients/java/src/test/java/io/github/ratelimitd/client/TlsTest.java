package io.github.ratelimitd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A service that asks clients for a certificate. */
class TlsTest {
    private static final char[] PASSWORD = "changeit".toCharArray();
    private static final Demand DEMAND = new Demand("sms-send", "a");

    @TempDir
    Path dir;

    private KeyStore server;
    private KeyStore client;

    @BeforeEach
    void makeCertificates() throws Exception {
        server = makeStore("server", "-ext", "san=ip:127.0.0.1");
        client = makeStore("client");
    }

    private KeyStore makeStore(String name, String... more) throws Exception {
        Path file = dir.resolve(name + ".p12");
        String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        List<String> command = new ArrayList<>(List.of(
                keytool, "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", "CN=" + name, "-storetype", "PKCS12",
                "-keystore", file.toString(), "-storepass", "changeit"));
        command.addAll(List.of(more));
        Process made = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(made.getInputStream().readAllBytes());
        assertEquals(0, made.waitFor(), said);
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(file)) {
            store.load(in, PASSWORD);
        }
        writePem(name + ".crt", "CERTIFICATE", store.getCertificate(name).getEncoded());
        writePem(name + ".key", "PRIVATE KEY", store.getKey(name, PASSWORD).getEncoded());
        return store;
    }

    private void writePem(String file, String type, byte[] content) throws Exception {
        String text = Base64.getMimeEncoder(64, "\n".getBytes()).encodeToString(content);
        Files.writeString(dir.resolve(file), "-----BEGIN " + type + "-----\n" + text + "\n-----END " + type + "-----\n");
        dir.resolve(file).toFile().setReadable(false, false);
        dir.resolve(file).toFile().setReadable(true, true);
    }

    private SSLContext context(boolean showsCertificate) throws Exception {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("server", server.getCertificate("server"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(client, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(showsCertificate ? keys.getKeyManagers() : null, trust.getTrustManagers(), null);
        return context;
    }

    @Test
    void aClientShowsItsCertificate() throws Exception {
        String[] flags = {
            "--tls-cert-file", dir.resolve("server.crt").toString(), "--tls-key-file", dir.resolve("server.key").toString(),
            "--tls-client-ca-file", dir.resolve("client.crt").toString()
        };
        try (Service service = new Service(flags)) {
            try (RatelimitdClient known = clientOf(service, context(true), 20)) {
                assertEquals(1, known.take(DEMAND).used());
            }
            try (RatelimitdClient unknown = clientOf(service, context(false), 0)) {
                assertThrows(UnavailableException.class, () -> unknown.take(DEMAND));
            }
            try (RatelimitdClient wary = clientOf(service, SSLContext.getDefault(), 0)) {
                UnavailableException error = assertThrows(UnavailableException.class, () -> wary.take(DEMAND));
                assertEquals(Optional.of(Recorded.NO), error.recorded(), error.toString());
            }
            try (RatelimitdClient known = clientOf(service, context(true), 20)) {
                assertEquals(2, known.take(DEMAND).used());
            }
        }
    }

    private static RatelimitdClient clientOf(Service service, SSLContext context, int retries) {
        return RatelimitdClient.builder(service.url())
                .sslContext(context)
                .timeout(Duration.ofSeconds(30))
                .retries(retries)
                .logger(new Quiet())
                .build();
    }
}
