package agreement_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

var errDown = errors.New("the store is down")

// memory is a store in memory.
type memory struct {
	mu    sync.Mutex
	down  bool
	texts map[string][]byte
	until map[string]time.Time
}

func newMemory() *memory {
	return &memory{texts: make(map[string][]byte), until: make(map[string]time.Time)}
}

func (m *memory) Publish(_ context.Context, id string, statement []byte, lasts time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errDown
	}
	m.texts[id], m.until[id] = statement, time.Now().Add(lasts)
	return nil
}

func (m *memory) Published(context.Context) (all [][]byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, errDown
	}
	for id, text := range m.texts {
		if time.Now().Before(m.until[id]) {
			all = append(all, text)
		}
	}
	return all, nil
}

func (m *memory) Withdraw(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.texts, id)
	return nil
}

func (m *memory) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// instance is one of the instances that have to agree.
type instance struct {
	*agreement.Agreement
	log bytes.Buffer
}

func newInstance(store agreement.Store, s agreement.Statement) *instance {
	i := new(instance)
	if s.Settings == nil {
		s.Settings = map[string]string{"store-timeout": "500ms"}
	}
	i.Agreement = agreement.New(store, s, func(*agreement.Statement) {}, slog.New(slog.NewTextHandler(&i.log, nil)))
	return i
}

func (i *instance) join(t *testing.T) *instance {
	t.Helper()
	if err := i.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i
}

// disagreed returns the settings about which others disagree.
func (i *instance) disagreed() (settings []string) {
	counts := i.Disagreements()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			settings = append(settings, name)
		}
	}
	return settings
}

func checksOf(ids ...string) []agreement.HashKey {
	var all []keys.HashKey
	for _, id := range ids {
		all = append(all, keys.HashKey{ID: id, Secret: []byte("a secret of " + id + " that is long enough")})
	}
	return agreement.HashKeysOf(all)
}

// TestHashKeysOutsideOfAChange holds that each step of a change of the hash key, a rolling restart, is accepted, and that
// other differences are not.
func TestHashKeysOutsideOfAChange(t *testing.T) {
	other := agreement.HashKeysOf([]keys.HashKey{{ID: "old", Secret: []byte("another secret by the same name")}})
	for name, test := range map[string]struct {
		have, comes []agreement.HashKey
		refused     bool
	}{
		"none":                          {nil, nil, false},
		"the same":                      {checksOf("old"), checksOf("old"), false},
		"the second line is added":      {checksOf("old"), checksOf("old", "new"), false},
		"lines are swapped":             {checksOf("old", "new"), checksOf("new", "old"), false},
		"the second line is dropped":    {checksOf("new", "old"), checksOf("new"), false},
		"one back":                      {checksOf("new", "old"), checksOf("old", "new"), false},
		"another":                       {checksOf("old"), checksOf("new"), true},
		"the first":                     {nil, checksOf("new"), true},
		"none any more":                 {checksOf("old"), nil, true},
		"swapped before all have both":  {checksOf("old"), checksOf("new", "old"), true},
		"dropped before all write it":   {checksOf("old", "new"), checksOf("new"), true},
		"another secret, the same name": {checksOf("old"), other, true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			newInstance(store, agreement.Statement{ID: "a", Name: "web-1", HashKeys: test.have}).join(t)
			err := newInstance(store, agreement.Statement{ID: "b", Name: "web-2", HashKeys: test.comes}).Join(t.Context())
			if got := errors.Is(err, agreement.ErrHashKey); got != test.refused || !got && err != nil {
				t.Fatalf("refused: %v (%v), want %v", got, err, test.refused)
			}
			if test.refused && (!strings.Contains(err.Error(), `instance "web-1"`) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("it is said: %v", err)
			}
			if _, published := store.texts["b"]; published == test.refused {
				t.Errorf("what the second says is kept: %v", published)
			}
		})
	}
}

// TestSecretsAreNotPublished holds that a statement does not contain the hash key.
func TestSecretsAreNotPublished(t *testing.T) {
	store, secret := newMemory(), "0123456789abcdef"
	checks := agreement.HashKeysOf([]keys.HashKey{{ID: "k", Secret: []byte(secret)}})
	newInstance(store, agreement.Statement{ID: "a", HashKeys: checks}).join(t)
	if text := string(store.texts["a"]); strings.Contains(text, secret) || !strings.Contains(text, `"check"`) {
		t.Errorf("kept is %s", text)
	}
}

func TestWhatElseDisagrees(t *testing.T) {
	sms := func(datacenter, limits string) agreement.Statement {
		members := map[string]string{"limits": limits, "count": "all"}
		return agreement.Statement{Policies: map[string]agreement.Policy{"sms": {Datacenter: datacenter, Members: members}}}
	}
	limits := []string{"policies.sms.limits"}
	for name, test := range map[string]struct {
		one, other agreement.Statement
		want       []string
	}{
		"nothing": {want: nil},
		"a flag": {
			agreement.Statement{Settings: map[string]string{"store-timeout": "1s"}},
			agreement.Statement{Settings: map[string]string{"store-timeout": "2s"}}, []string{"store-timeout"},
		},
		"a flag that an earlier build does not tell": {
			agreement.Statement{Settings: map[string]string{"store-timeout": "1s", "new": "1"}},
			agreement.Statement{Settings: map[string]string{"store-timeout": "1s"}}, nil,
		},
		"a limit": {
			sms("", "10"), sms("", "20"), limits,
		},
		"a member that one has": {
			sms("", "10"),
			agreement.Statement{Policies: map[string]agreement.Policy{"sms": {Members: map[string]string{"limits": "10"}}}},
			[]string{"policies.sms.count"},
		},
		"a policy that one has":                         {one: sms("", "10")},
		"a limit in the same data centre":               {sms("x", "10"), sms("x", "20"), limits},
		"a limit in another data centre":                {sms("x", "10"), sms("y", "20"), nil},
		"a limit of which one is for the whole cluster": {sms("x", "10"), sms("", "20"), limits},
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			test.one.ID, test.other.ID, test.one.Name = "a", "b", "web-1"
			newInstance(store, test.one).join(t)
			i := newInstance(store, test.other).join(t)
			if got := i.disagreed(); !slices.Equal(got, test.want) {
				t.Errorf("they disagree about %v, want %v", got, test.want)
			}
			if got := strings.Count(i.log.String(), "level=WARN"); got != len(test.want) {
				t.Errorf("%d warnings, want %d:\n%s", got, len(test.want), &i.log)
			}
			for _, setting := range test.want {
				if log, said := i.log.String(), i.Warnings(); !strings.Contains(log, "setting="+setting) || !strings.Contains(log, "instance=web-1") ||
					len(said) != 1 || !strings.Contains(said[0], strings.Split(setting, ".")[0]) || strings.Contains(said[0], "web-1") {
					t.Errorf("log:\n%swarnings: %v", log, said)
				}
			}
		})
	}
}

// TestEnvoyIsAskedAlike holds that two instances state the same about a domain that they map alike, whatever the headers,
// and that an instance without it states nothing.
func TestEnvoyIsAskedAlike(t *testing.T) {
	edge := func(header, policy string) *policyfile.Envoy {
		return &policyfile.Envoy{
			Headers: policyfile.EnvoyHeaders{Limit: header},
			Domains: []policyfile.EnvoyDomain{{Name: "edge", Descriptors: []policyfile.EnvoyDescriptor{
				{Key: "a", Descriptors: []policyfile.EnvoyDescriptor{{Key: "b", Policy: policy}}},
			}}},
		}
	}
	said := agreement.EnvoyOf(edge("", "sms"))
	if !strings.HasPrefix(said["envoy.edge"], "descriptors: 2, check value ") {
		t.Errorf("it says %v", said)
	}
	if other := agreement.EnvoyOf(edge("X-Limit", "sms")); !maps.Equal(said, other) {
		t.Errorf("with a header: %v, want %v", other, said)
	}
	if other := agreement.EnvoyOf(edge("", "mail")); maps.Equal(said, other) {
		t.Errorf("with another policy: %v", other)
	}
	if none := agreement.EnvoyOf(nil); len(none) > 0 {
		t.Errorf("without: %v", none)
	}
}

// TestDisagreementsComeAndGo holds that an instance notices another one that disagrees, and that it has gone.
func TestDisagreementsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		i := newInstance(store, agreement.Statement{ID: "a", Name: "web-1"}).join(t)
		run.Go(func() { _ = i.Run(ctx) })
		if got := i.Disagreements(); got["store-timeout"] != 0 || len(got) != 2 {
			t.Errorf("alone it has %v", got)
		}
		newInstance(store, agreement.Statement{ID: "b", Name: "web-2", Settings: map[string]string{"store-timeout": "9s"}}).join(t)
		time.Sleep(11 * time.Second)
		if got := i.disagreed(); got != nil {
			t.Errorf("it disagrees about %v at the first look: it may be a change on its way", got)
		}
		time.Sleep(10 * time.Second)
		if got := i.disagreed(); !slices.Equal(got, []string{"store-timeout"}) {
			t.Errorf("it disagrees about %v, want the timeout", got)
		}
		store.setDown(true)
		time.Sleep(40 * time.Second)
		if got := i.disagreed(); len(got) != 1 {
			t.Errorf("while nothing is known it disagrees about %v, want what was known", got)
		}
		store.setDown(false)
		time.Sleep(10 * time.Second) // the other one is dead, and forgotten
		if got := i.disagreed(); got != nil {
			t.Errorf("it disagrees about %v with nobody", got)
		}
		stop()
		run.Wait()
		if all, _ := store.Published(t.Context()); len(all) != 0 {
			t.Errorf("after its end it says %s", all)
		}
		if log := i.log.String(); strings.Count(log, "instances disagree") != 1 || strings.Count(log, "agree about their settings again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestAwaitTriesAgain holds that Await waits for a store that does not answer at first.
func TestAwaitTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		newInstance(store, agreement.Statement{ID: "a", HashKeys: checksOf("old")}).join(t)
		store.setDown(true)
		same, another := newInstance(store, agreement.Statement{ID: "b", HashKeys: checksOf("old")}),
			newInstance(store, agreement.Statement{ID: "c", HashKeys: checksOf("new")})
		time.AfterFunc(5*time.Second, func() { store.setDown(false) })
		if err := same.Await(t.Context()); err != nil || time.Until(store.until["b"]) < 0 {
			t.Errorf("%v", err)
		}
		if err := another.Await(t.Context()); !errors.Is(err, agreement.ErrHashKey) {
			t.Errorf("with another key: %v, want %v", err, agreement.ErrHashKey)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		store.setDown(true)
		if err := newInstance(store, agreement.Statement{ID: "d"}).Await(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("when it is told to end: %v", err)
		}
	})
}

// meeting is a store that answers after two instances have asked, with the statements published before each asked.
type meeting struct {
	*memory
	asked sync.WaitGroup
}

func (m *meeting) Published(ctx context.Context) ([][]byte, error) {
	all, err := m.memory.Published(ctx)
	m.asked.Done()
	m.asked.Wait()
	return all, err
}

// TestOfTwoThatJoinAtTheSameTimeOneIsRefused holds that at least one of two instances that read at the same time is refused.
func TestOfTwoThatJoinAtTheSameTimeOneIsRefused(t *testing.T) {
	store := &meeting{memory: newMemory()}
	store.asked.Add(2)
	errs := make(chan error, 2)
	for _, id := range []string{"a", "b"} {
		go func() {
			errs <- newInstance(store, agreement.Statement{ID: id, HashKeys: checksOf(id)}).Join(t.Context())
		}()
	}
	if first, second := <-errs, <-errs; first == nil && second == nil {
		t.Error("both begin, with different hash keys")
	}
}
