package io.github.ratelimitd.spring;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** IP addresses: finds the caller behind trusted proxies. */
final class Addresses {
    /** Stands for a connection through a unix socket, which has no address. nginx writes {@code unix:} for one. */
    static final String UNIX = "unix";

    private static final byte[] UNIX_PEER = {}; // no address has no bytes
    private static final Pattern BRACKETED = Pattern.compile("\\[(.*)](:\\d+)?");
    private static final Pattern V4 = Pattern.compile("(0|[1-9]\\d{0,2})(\\.(0|[1-9]\\d{0,2})){3}");
    private static final Pattern V6 = Pattern.compile("[0-9a-fA-F:]*:[0-9a-fA-F:]*(\\d{1,3}(\\.\\d{1,3}){3})?");

    // IPv6 networks in which each address stands for an IPv4 address; as a /64, all would count as one.
    private static final byte[] TRANSLATED = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 0, 0}; // RFC 2765, section 2.1
    private static final byte[] COMPATIBLE = new byte[12]; // RFC 4291, section 2.5.5.1; except :: and ::1
    private static final byte[] NAT64 = {0, 0x64, -1, (byte) 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}; // RFC 6052, section 2.1
    private static final byte[] NAT64_LOCAL = {0, 0x64, -1, (byte) 0x9b, 0, 1}; // RFC 8215: networks of any length
    private static final byte[] SIX_TO_FOUR = {0x20, 0x02}; // RFC 3056, section 2
    private static final byte[] TEREDO = {0x20, 0x01, 0, 0}; // RFC 4380, section 4

    private final List<Network> trusted;

    private record Network(byte[] prefix, int bits) {
        boolean has(byte[] address) {
            if (address.length != prefix.length) {
                return false;
            }
            for (int i = 0; i < address.length; i++) {
                if (((address[i] ^ prefix[i]) & mask(i, bits)) != 0) {
                    return false;
                }
            }
            return true;
        }
    }

    /**
     * Makes an object that finds callers.
     *
     * @param trusted proxies whose X-Forwarded-For is trusted: addresses, networks and {@link #UNIX}
     * @throws IllegalArgumentException that names the one that is neither
     */
    Addresses(List<String> trusted) {
        this.trusted = trusted.stream().map(Addresses::network).toList();
    }

    /**
     * Returns the caller: the address of the connection or, while that is a trusted proxy's, the one for which it
     * forwards. Of IPv6, a /64 is one caller.
     *
     * @return null: a trusted proxy sent something other than an address
     */
    String callerOf(String connection, List<String> forwardedFor) {
        byte[] peer = peer(connection);
        if (peer == null) {
            return connection;
        }
        List<String> hops = new ArrayList<>();
        for (String line : forwardedFor) {
            Arrays.stream(line.split(",")).map(String::strip).filter(hop -> !hop.isEmpty()).forEach(hops::add);
        }
        Collections.reverse(hops);
        for (String hop : hops) {
            if (!isTrusted(peer)) {
                break;
            }
            peer = peer(hop);
            if (peer == null) {
                return null;
            }
        }
        return peer == UNIX_PEER ? "unknown" : callerOf(peer);
    }

    private static byte[] peer(String text) {
        return text.equals(UNIX) || text.equals(UNIX + ":") ? UNIX_PEER : parse(text);
    }

    /** Returns whether a text could be what {@link #callerOf(String, List)} returns. */
    static boolean isAddress(String text) {
        return text.equals("@") || parse(text.replaceFirst("/\\d+$", "")) != null;
    }

    private boolean isTrusted(byte[] address) {
        return trusted.stream().anyMatch(network -> network.has(address));
    }

    private static Network network(String text) {
        if (text.equals(UNIX)) {
            return new Network(UNIX_PEER, 0);
        }
        String[] parts = text.split("/", -1);
        byte[] written = bytesOf(parts[0]);
        boolean sound = written != null && (parts.length == 1 || parts.length == 2 && parts[1].matches("\\d{1,3}"));
        if (sound) {
            // Written as IPv4 in IPv6, it is an IPv4 network, whose bits are the last ones.
            byte[] address = unmapped(written);
            int bits = parts.length == 1 ? 8 * written.length : Integer.parseInt(parts[1]);
            int own = bits - 8 * (written.length - address.length);
            if (own >= 0 && own <= 8 * address.length && hasNoMore(address, own)) {
                return new Network(address, own);
            }
        }
        throw new IllegalArgumentException("ratelimitd.trusted-proxies has " + text
                + ", which is no address and no network: write it such as 10.0.0.0/8 or 192.0.2.7, or unix");
    }

    private static boolean hasNoMore(byte[] address, int bits) {
        for (int i = 0; i < address.length; i++) {
            if ((address[i] & ~mask(i, bits) & 0xff) != 0) {
                return false;
            }
        }
        return true;
    }

    /** Returns the bits of the i-th byte that are within a prefix. */
    private static int mask(int i, int bits) {
        return 0xff00 >> Math.max(0, Math.min(8, bits - 8 * i)) & 0xff;
    }

    /** Reads an address with a port or without; null: it is not an address. */
    private static byte[] parse(String text) {
        Matcher bracketed = BRACKETED.matcher(text);
        String bare = bracketed.matches() ? bracketed.group(1) : text.replaceFirst("^([^:]*):\\d+$", "$1");
        byte[] address = bytesOf(bare.replaceFirst("%.*$", ""));
        return address == null ? null : unmapped(address);
    }

    /** Returns 4 or 16 bytes; null: the text is not an address. */
    private static byte[] bytesOf(String text) {
        boolean v4 = V4.matcher(text).matches();
        if (!v4 && !V6.matcher(text).matches()) {
            return null; // InetAddress would look up a name
        }
        try {
            byte[] address = InetAddress.getByName(text).getAddress();
            // The JDK returns 4 bytes for IPv4-mapped addresses, too.
            return v4 || address.length == 16 ? address : mapped(address);
        } catch (UnknownHostException e) {
            return null;
        }
    }

    private static byte[] mapped(byte[] v4) {
        byte[] address = new byte[16];
        address[10] = -1;
        address[11] = -1;
        System.arraycopy(v4, 0, address, 12, 4);
        return address;
    }

    private static byte[] unmapped(byte[] address) {
        boolean isMapped = address.length == 16 && Arrays.equals(address, mapped(last4(address)));
        return isMapped ? last4(address) : address;
    }

    /** Returns the counted identifier. It never decides trust, because anybody can have a tunnel that ends at any address. */
    private static String callerOf(byte[] address) {
        if (address.length == 4) {
            return text(address);
        }
        if (startsWith(address, SIX_TO_FOUR)) {
            return text(Arrays.copyOfRange(address, 2, 6));
        }
        if (startsWith(address, TEREDO)) {
            byte[] inverted = last4(address);
            for (int i = 0; i < 4; i++) {
                inverted[i] ^= -1;
            }
            return text(inverted);
        }
        boolean local = startsWith(address, NAT64_LOCAL);
        boolean compatible = startsWith(address, COMPATIBLE) && address[12] != 0;
        if (compatible || startsWith(address, TRANSLATED) || startsWith(address, NAT64)
                || local && Arrays.equals(address, 8, 12, COMPATIBLE, 0, 4)) {
            return text(last4(address));
        }
        return local ? text(address) : text(Arrays.copyOf(Arrays.copyOf(address, 8), 16)) + "/64";
    }

    private static boolean startsWith(byte[] address, byte[] prefix) {
        return Arrays.equals(address, 0, prefix.length, prefix, 0, prefix.length);
    }

    private static byte[] last4(byte[] address) {
        return Arrays.copyOfRange(address, address.length - 4, address.length);
    }

    /** Returns an address in the form of RFC 5952. */
    private static String text(byte[] address) {
        if (address.length == 4) {
            return (address[0] & 0xff) + "." + (address[1] & 0xff) + "." + (address[2] & 0xff) + "." + (address[3] & 0xff);
        }
        int[] groups = new int[8];
        for (int i = 0; i < 8; i++) {
            groups[i] = (address[2 * i] & 0xff) << 8 | address[2 * i + 1] & 0xff;
        }
        int longest = 0;
        int at = -1;
        for (int i = 0; i < 8; i++) {
            int n = 0;
            while (i + n < 8 && groups[i + n] == 0) {
                n++;
            }
            if (n > longest && n > 1) {
                longest = n;
                at = i;
            }
        }
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            if (i == at) {
                text.append("::");
                i += longest - 1;
                continue;
            }
            if (!text.isEmpty() && text.charAt(text.length() - 1) != ':') {
                text.append(':');
            }
            text.append(Integer.toHexString(groups[i]));
        }
        return text.toString();
    }
}
