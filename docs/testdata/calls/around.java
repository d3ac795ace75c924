// What blocks of Java find around them on a page.
import io.github.ratelimitd.client.RatelimitdClient;
import java.time.Duration;
import java.util.Optional;

class Around {
    private static final String CALLER = // a number that no other block has
            System.getenv().getOrDefault("PAGE_CALLER", "");

    static final String phone = "+4915112345" + "0".repeat(3 - CALLER.length()) + CALLER;
    static final String url = System.getenv().getOrDefault("RATELIMITD_SERVER", "");
    static final RatelimitdClient limits = RatelimitdClient.builder(url).build();

    private static boolean does(String what) {
        System.out.println(what);
        return true;
    }

    static boolean sendCode(String phone) {
        return !does("send the code"); // the gateway refuses it
    }

    static void tellToWait(Optional<Duration> wait) {
        does("tell to wait");
    }
}
