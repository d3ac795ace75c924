package io.github.ratelimitd.client;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** A service that answers requests as a test says, and repeats the last answer. */
final class Scripted implements AutoCloseable {
    /** Handles a request. If it throws, the connection ends. */
    interface Answer {
        void to(Request request, OutputStream out) throws IOException, InterruptedException;
    }

    /** A request; the names of headers are in lower case. */
    record Request(String path, Map<String, String> headers, String body) {}

    /** Ends the connection without an answer. */
    static final Answer CUT = (request, out) -> {
        throw new IOException("cut");
    };

    /** Never answers. */
    static final Answer SILENT = (request, out) -> new CountDownLatch(1).await();

    final List<Request> requests = new CopyOnWriteArrayList<>();

    private final Semaphore arrived = new Semaphore(0);
    private final List<Answer> script;
    private final ServerSocket listener;
    private final Set<Socket> connections = ConcurrentHashMap.newKeySet();
    private final Set<Thread> threads = ConcurrentHashMap.newKeySet();

    Scripted(Answer... script) {
        this("127.0.0.1", 0, script);
    }

    Scripted(String address, int port, Answer... script) {
        this.script = List.of(script);
        try {
            listener = new ServerSocket(port, 256, InetAddress.getByName(address));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        run(this::accept);
    }

    String url() {
        return "http://127.0.0.1:" + listener.getLocalPort();
    }

    /** Waits for a number of requests. */
    void await(int n) throws InterruptedException {
        if (!arrived.tryAcquire(n, 30, TimeUnit.SECONDS)) {
            throw new AssertionError(requests.size() + " requests have come, want " + n);
        }
        arrived.release(n);
    }

    /** Answers with a whole body. */
    static Answer answer(int status, Map<String, String> headers, String body) {
        return (request, out) -> {
            byte[] content = body.getBytes(StandardCharsets.UTF_8);
            writeHead(out, status, headers, content.length);
            out.write(content);
            out.flush();
        };
    }

    /** Allows each operation of a request. */
    static Answer allow() {
        return (request, out) -> {
            String body = DECISION;
            if (request.path().endsWith("/batch")) {
                int n = ((List<?>) ((Map<?, ?>) Json.read(request.body())).get("operations")).size();
                String result = "{\"status\":200," + DECISION.substring(1);
                body = "{\"results\":[" + (result + ",").repeat(n - 1) + result + "]}";
            }
            answer(200, Map.of("Content-Type", "application/json"), body).to(request, out);
        };
    }

    static final String DECISION =
            "{\"allowed\":true,\"policy\":\"sms-send\",\"limit\":3,\"remaining\":2,\"used\":1,\"reset_after_ms\":0,"
                    + "\"retry_after_ms\":0,\"limits\":[],\"mode\":\"enforce\",\"degraded\":false}";

    /** Answers with a problem. */
    static Answer problem(int status, String recorded, String... headers) {
        Map<String, String> all = new TreeMap<>(Map.of("Content-Type", "application/problem+json"));
        for (int i = 0; i < headers.length; i += 2) {
            all.put(headers[i], headers[i + 1]);
        }
        String body = "{\"type\":\"about:blank\",\"title\":\"t\",\"status\":" + status + ",\"detail\":\"It fails.\""
                + (recorded == null ? "" : ",\"recorded\":\"" + recorded + "\"") + "}";
        return answer(status, all, body);
    }

    static void writeHead(OutputStream out, int status, Map<String, String> headers, int length) throws IOException {
        StringBuilder head = new StringBuilder("HTTP/1.1 " + status + " Status\r\n");
        headers.forEach((name, value) -> head.append(name).append(": ").append(value).append("\r\n"));
        if (status != 204) {
            head.append("Content-Length: ").append(length).append("\r\n");
        }
        out.write(head.append("\r\n").toString().getBytes(StandardCharsets.US_ASCII));
    }

    private void run(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        threads.add(thread);
        thread.start();
    }

    private void accept() {
        while (true) {
            try {
                Socket connection = listener.accept();
                connections.add(connection);
                run(() -> serve(connection));
            } catch (IOException e) {
                return; // the server is closed
            }
        }
    }

    private void serve(Socket connection) {
        try (connection;
                InputStream in = new BufferedInputStream(connection.getInputStream());
                OutputStream out = connection.getOutputStream()) {
            for (Request request = read(in); request != null; request = read(in)) {
                Answer answer;
                synchronized (script) {
                    answer = script.get(Math.min(requests.size(), script.size() - 1));
                    requests.add(request);
                    arrived.release();
                }
                answer.to(request, out);
            }
        } catch (IOException | InterruptedException e) {
            // the connection ends
        }
    }

    private static Request read(InputStream in) throws IOException {
        String line = line(in);
        if (line.isEmpty()) {
            return null;
        }
        String path = line.split(" ")[1];
        Map<String, String> headers = new TreeMap<>();
        for (line = line(in); !line.isEmpty(); line = line(in)) {
            int colon = line.indexOf(':');
            headers.put(line.substring(0, colon).toLowerCase(Locale.ROOT), line.substring(colon + 1).strip());
        }
        byte[] body = in.readNBytes(Integer.parseInt(headers.getOrDefault("content-length", "0")));
        return new Request(path, headers, new String(body, StandardCharsets.UTF_8));
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int c = in.read(); c >= 0 && c != '\n'; c = in.read()) {
            line.write(c);
        }
        return line.toString(StandardCharsets.UTF_8).strip();
    }

    @Override
    public void close() {
        try {
            listener.close();
            for (Socket connection : connections) {
                connection.close();
            }
            threads.forEach(Thread::interrupt);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
