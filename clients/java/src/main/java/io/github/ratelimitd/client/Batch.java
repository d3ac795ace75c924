package io.github.ratelimitd.client;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Writes batches. */
final class Batch {
    private Batch() {}

    static byte[] bodyOf(List<PreparedCall> calls) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        String separator = "{\"operations\":[";
        for (PreparedCall call : calls) {
            body.writeBytes(separator.getBytes(StandardCharsets.US_ASCII));
            body.writeBytes(call.operation);
            separator = ",";
        }
        body.writeBytes("]}".getBytes(StandardCharsets.US_ASCII));
        return body.toByteArray();
    }
}
