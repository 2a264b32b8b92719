// Drives the coordinator by dtm's own Go client: every mode, every outcome, over real HTTP.
//
//	DTM_URL=http://127.0.0.1:9680 DTM_GRPC=127.0.0.1:9681 go run .
//
// Without DTM_GRPC, gRPC is left out; see grpc.go.
//
// Participants live in this program. They keep books as dtm's barrier does: what comes twice is
// done once, and a compensation before its action bars it. Each test prints one line; the last
// line is "N passed, N failed".
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/dtm-labs/dtm/client/dtmcli"
	"github.com/dtm-labs/dtm/client/workflow"
	"github.com/go-resty/resty/v2"
)

var (
	dtm   string
	busi  string
	books = &book{scripts: map[string][]int{}, done: map[string]bool{}, balance: map[string]int{}}
)

// book is what the participants wrote down.
type book struct {
	sync.Mutex
	calls   []call
	scripts map[string][]int
	done    map[string]bool
	balance map[string]int
}

type call struct {
	path, gid, kind, branch, op, method, body string
	header                                    http.Header
}

type transfer struct {
	Amount int `json:"amount"`
}

// script makes the next calls of gid and path answer with these codes; then 200.
func script(gid, path string, codes ...int) {
	books.Lock()
	defer books.Unlock()
	books.scripts[gid+path] = codes
}

func (b *book) of(gid string) []call {
	b.Lock()
	defer b.Unlock()
	found := []call{}
	for _, c := range b.calls {
		if c.gid == gid {
			found = append(found, c)
		}
	}
	return found
}

func shown(gid string) string {
	words := []string{}
	for _, c := range books.of(gid) {
		words = append(words, c.path+":"+c.op)
	}
	return strings.Join(words, " ")
}

func participant(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, _ := io.ReadAll(r.Body)
	c := call{r.URL.Path, q.Get("gid"), q.Get("trans_type"), q.Get("branch_id"), q.Get("op"),
		r.Method, string(body), r.Header}
	if r.URL.Path == "/workflow" {
		answerWorkflow(w, q, body)
		return
	}
	books.Lock()
	defer books.Unlock()
	books.calls = append(books.calls, c)
	if codes := books.scripts[c.gid+c.path]; len(codes) > 0 {
		books.scripts[c.gid+c.path] = codes[1:]
		if codes[0] != 200 {
			w.WriteHeader(codes[0])
			fmt.Fprintf(w, `{"said":%d}`, codes[0])
			return
		}
	}
	settle(c)
	fmt.Fprint(w, `{"dtm_result":"SUCCESS"}`)
}

// settle moves money once per branch and operation, with dtm's barrier rules.
func settle(c call) {
	var t transfer
	_ = json.Unmarshal([]byte(c.body), &t)
	key := func(op string) string { return c.gid + "/" + c.branch + "/" + op }
	origin := map[string]string{"compensate": "action", "cancel": "try", "rollback": "action"}[c.op]
	if books.done[key(c.op)] {
		return
	}
	books.done[key(c.op)] = true
	if origin != "" && !books.done[key(origin)] {
		books.done[key(origin)] = true
		return
	}
	sign := map[string]int{
		"action": 1, "try": 1, "compensate": -1, "cancel": -1, "rollback": -1,
	}[c.op]
	if strings.HasPrefix(c.path, "/out") {
		sign = -sign
	}
	books.balance[c.gid] += sign * t.Amount
}

func answerWorkflow(w http.ResponseWriter, q url.Values, body []byte) {
	err := workflow.ExecuteByQS(q, body)
	code, result := dtmcli.Result2HttpJSON(err)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(result)
}

// ---- helpers --------------------------------------------------------------------------------

type state struct {
	Transaction map[string]any
	Branches    []map[string]any
}

func query(gid string) state {
	var s state
	resp, err := http.Get(dtm + "/query?gid=" + url.QueryEscape(gid))
	if err == nil {
		defer resp.Body.Close()
		_ = json.NewDecoder(resp.Body).Decode(&s)
	}
	return s
}

func awaitStatus(gid, wanted string, seconds int) error {
	last := ""
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		last = fmt.Sprint(query(gid).Transaction["status"])
		if last == wanted {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s is %s, not %s: %s", gid, last, wanted, shown(gid))
}

func equal(what string, got, wanted any) error {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		return fmt.Errorf("%s: got %v, wanted %v", what, got, wanted)
	}
	return nil
}

func refused(what string, err error, word string) error {
	if err == nil || !strings.Contains(err.Error(), word) {
		return fmt.Errorf("%s: %v, wanted an error with %s", what, err, word)
	}
	return nil
}

func post(path, body string) (int, string) {
	resp, err := http.Post(dtm+"/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func get(path string) (int, string) {
	resp, err := http.Get(dtm + "/" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func gid() string { return dtmcli.MustGenGid(dtm) }

func twoSteps(g string) *dtmcli.Saga {
	req := transfer{30}
	s := dtmcli.NewSaga(dtm, g).Add(busi+"/out", busi+"/out-back", req).
		Add(busi+"/in", busi+"/in-back", req)
	s.WaitResult = true
	s.RetryInterval = 1
	return s
}

func all(errs ...error) error { return errors.Join(errs...) }

// ---- tests ----------------------------------------------------------------------------------

var tests = map[string]func() error{
	"gids differ and have 22 characters": func() error {
		a, b := gid(), gid()
		if a == b {
			return errors.New("the same gid twice")
		}
		return equal("length", len(a), 22)
	},
	"saga: both steps, in order, with dtm's parameters": func() error {
		g := gid()
		err := twoSteps(g).Submit()
		calls := books.of(g)
		if len(calls) != 2 {
			return fmt.Errorf("%v; calls: %s", err, shown(g))
		}
		c := calls[0]
		return all(err, equal("calls", shown(g), "/out:action /in:action"),
			equal("parameters", []string{c.kind, c.branch, c.op, c.method}, "[saga 01 action POST]"),
			equal("body", c.body, `{"amount":30}`),
			equal("content type", c.header.Get("Content-Type"), "application/json"),
			equal("status", query(g).Transaction["status"], "succeed"))
	},
	"saga: a refused step is rolled back backwards": func() error {
		g := gid()
		script(g, "/in", 409)
		err := twoSteps(g).Submit()
		t := query(g).Transaction
		return all(refused("submit", err, "FAILURE"), equal("status", t["status"], "failed"),
			equal("calls", shown(g), "/out:action /in:action /in-back:compensate /out-back:compensate"),
			equal("reason", t["rollback_reason"],
				"url:"+busi+`/in return failed: {"said":409} FAILURE`),
			equal("balance", books.balance[g], 0))
	},
	"saga: 425 and 500 are tried again": func() error {
		g := gid()
		script(g, "/out", 425, 500)
		err := twoSteps(g).Submit()
		return all(refused("submit", err, "wait result not return success"),
			awaitStatus(g, "succeed", 10),
			equal("calls", shown(g), "/out:action /out:action /out:action /in:action"))
	},
	"saga: a compensation is tried until it succeeds": func() error {
		g := gid()
		script(g, "/in", 409)
		script(g, "/out-back", 500, 409)
		_ = twoSteps(g).Submit()
		return all(awaitStatus(g, "failed", 12), equal("balance", books.balance[g], 0))
	},
	"saga: concurrent steps keep their orders": func() error {
		g := gid()
		s := dtmcli.NewSaga(dtm, g)
		for _, path := range []string{"/a", "/b", "/c"} {
			s.Add(busi+path, busi+path+"-back", transfer{1})
		}
		s.SetConcurrent().AddBranchOrder(0, []int{1, 2})
		s.WaitResult = true
		err := s.Submit()
		calls := books.of(g)
		return all(err, equal("calls", len(calls), 3), equal("last", calls[2].path, "/a"))
	},
	"saga: empty branches need no call": func() error {
		g := gid()
		s := dtmcli.NewSaga(dtm, g).Add("", "", nil).Add("", "", nil)
		s.WaitResult = true
		return all(s.Submit(), equal("calls", shown(g), ""))
	},
	"saga: retry_limit ends it": func() error {
		g := gid()
		script(g, "/in", 500, 500, 500, 500)
		s := twoSteps(g)
		s.WithRetryLimit(2)
		err := s.Submit()
		return all(refused("submit", err, "RetryLimit: 2"), awaitStatus(g, "failed", 5))
	},
	"saga: timeout_to_fail ends it": func() error {
		g := gid()
		script(g, "/in", 425, 425, 425, 425, 425, 425)
		s := twoSteps(g)
		s.TimeoutToFail = 2
		_ = s.Submit()
		return all(awaitStatus(g, "failed", 10),
			equal("reason", query(g).Transaction["rollback_reason"], "Timeout after 2 seconds"))
	},
	"saga: branch headers": func() error {
		g := gid()
		s := twoSteps(g)
		s.BranchHeaders = map[string]string{"X-Test": "yes"}
		err := s.Submit()
		return all(err, equal("header", books.of(g)[0].header.Get("X-Test"), "yes"))
	},
	"saga: the same gid again": func() error {
		g := gid()
		first := twoSteps(g).Submit()
		other := dtmcli.NewSaga(dtm, g).Add(busi+"/other", "", nil)
		return all(first, refused("again", twoSteps(g).Submit(), "FAILURE"),
			refused("other content", other.Submit(), "FAILURE"))
	},
	"saga: over JSON-RPC": func() error {
		g := gid()
		s := twoSteps(g)
		s.Dtm = strings.Replace(dtm, "dtmsvr", "json-rpc", 1)
		s.Protocol = "json-rpc"
		return all(s.Submit(), equal("status", query(g).Transaction["status"], "succeed"))
	},
	"msg: prepare and submit": func() error {
		g := gid()
		m := dtmcli.NewMsg(dtm, g).Add(busi+"/in", transfer{30})
		m.WaitResult = true
		err := m.Prepare(busi + "/query")
		status := query(g).Transaction["status"]
		return all(err, equal("prepared", status, "prepared"), m.Submit(),
			equal("calls", shown(g), "/in:action"))
	},
	"msg: a failure before the submit aborts": func() error {
		g := gid()
		m := dtmcli.NewMsg(dtm, g).Add(busi+"/in", transfer{30})
		err := m.DoAndSubmit(busi+"/query", func(*dtmcli.BranchBarrier) error {
			return dtmcli.ErrFailure
		})
		return all(refused("do", err, "FAILURE"), awaitStatus(g, "failed", 2),
			equal("calls", shown(g), ""))
	},
	"msg: a lost submit is asked for": func() error {
		g := gid()
		script(g, "/query", 425)
		m := dtmcli.NewMsg(dtm, g).Add(busi+"/in", transfer{30})
		m.TimeoutToFail, m.RetryInterval = 1, 1
		err := m.Prepare(busi + "/query")
		return all(err, awaitStatus(g, "succeed", 10),
			equal("calls", shown(g), "/query:msg /query:msg /in:action"))
	},
	"msg: a lost submit that had failed": func() error {
		g := gid()
		script(g, "/query", 409)
		m := dtmcli.NewMsg(dtm, g).Add(busi+"/in", transfer{30})
		m.TimeoutToFail = 1
		return all(m.Prepare(busi+"/query"), awaitStatus(g, "failed", 10),
			equal("calls", shown(g), "/query:msg"))
	},
	"msg: delayed": func() error {
		g := gid()
		m := dtmcli.NewMsg(dtm, g).Add(busi+"/in", transfer{30}).SetDelay(2)
		began := time.Now()
		err := all(m.Submit(), awaitStatus(g, "succeed", 10))
		if waited := time.Since(began); waited < 1500*time.Millisecond {
			return fmt.Errorf("%v: only %v", err, waited)
		}
		return err
	},
	"msg: topics": func() error {
		g, topic := gid(), "topic-"+gid()
		m := dtmcli.NewMsg(dtm, g).AddTopic(topic, transfer{1})
		unknown := refused("unknown topic", m.Submit(), "topic not found")
		for _, path := range []string{"/one", "/two"} {
			code, text := get("subscribe?topic=" + topic + "&remark=r&url=" + url.QueryEscape(busi+path))
			if code != 200 {
				return errors.New(text)
			}
		}
		_, again := get("subscribe?topic=" + topic + "&url=" + url.QueryEscape(busi+"/one"))
		_, kv := get("queryKV?cat=topics&key=" + topic)
		m = dtmcli.NewMsg(dtm, g).AddTopic(topic, transfer{1})
		m.WaitResult = true
		err := m.Submit()
		calls := books.of(g)
		if len(calls) != 2 {
			return fmt.Errorf("%v: %s", err, shown(g))
		}
		return all(unknown, err, equal("first", calls[0].branch, "01-01"),
			equal("second", calls[1].branch, "01-02"),
			equal("again", again, `{"message":"this url exists"}`),
			equal("version in kv", strings.Contains(kv, `"version":2`), true))
	},
	"tcc: confirmed": func() error {
		g := gid()
		err := dtmcli.TccGlobalTransaction(dtm, g, func(tcc *dtmcli.Tcc) (*resty.Response, error) {
			resp, err := tcc.CallBranch(transfer{30}, busi+"/out", busi+"/ok", busi+"/out-back")
			if err != nil {
				return resp, err
			}
			return tcc.CallBranch(transfer{30}, busi+"/in", busi+"/ok", busi+"/in-back")
		})
		return all(err, awaitStatus(g, "succeed", 5),
			equal("calls", shown(g), "/out:try /in:try /ok:confirm /ok:confirm"),
			equal("order", books.of(g)[2].branch, "02"))
	},
	"tcc: a try that fails is cancelled": func() error {
		g := gid()
		script(g, "/in", 409)
		err := dtmcli.TccGlobalTransaction(dtm, g, func(tcc *dtmcli.Tcc) (*resty.Response, error) {
			resp, err := tcc.CallBranch(transfer{30}, busi+"/out", busi+"/ok", busi+"/out-back")
			if err != nil {
				return resp, err
			}
			return tcc.CallBranch(transfer{30}, busi+"/in", busi+"/ok", busi+"/in-back")
		})
		return all(refused("tcc", err, "409"), awaitStatus(g, "failed", 5),
			equal("calls", shown(g), "/out:try /in:try /in-back:cancel /out-back:cancel"),
			equal("balance", books.balance[g], 0))
	},
	"tcc: a client that vanished is timed out": func() error {
		g := gid()
		body := `{"gid":"` + g + `","trans_type":"tcc","timeout_to_fail":1}`
		code, text := post("prepare", body)
		register := fmt.Sprintf(`{"gid":"%s","trans_type":"tcc","branch_id":"01","data":"{}",`+
			`"confirm":"%s/ok","cancel":"%s/back"}`, g, busi, busi)
		code2, text2 := post("registerBranch", register)
		return all(equal(text, code, 200), equal(text2, code2, 200), awaitStatus(g, "failed", 6),
			equal("calls", shown(g), "/back:cancel"))
	},
	"xa: committed": func() error {
		g := gid()
		base := `{"gid":"` + g + `","trans_type":"xa","wait_result":true}`
		register := fmt.Sprintf(
			`{"gid":"%s","trans_type":"xa","branch_id":"01","url":"%s/xa"}`, g, busi)
		a, _ := post("prepare", base)
		b, _ := post("registerXaBranch", register)
		c, text := post("submit", base)
		late, _ := post("registerBranch", register)
		return all(equal(text, []int{a, b, c, late}, "[200 200 200 409]"),
			equal("calls", shown(g), "/xa:commit"), equal("method", books.of(g)[0].method, "POST"))
	},
	"workflow: done": func() error {
		g := gid()
		err := workflow.Execute("transfer", g, []byte(`{"amount":30}`))
		return all(err, equal("status", query(g).Transaction["status"], "succeed"),
			equal("calls", shown(g), "/out:action /in:action"))
	},
	"workflow: rolled back": func() error {
		g := gid()
		script(g, "/in", 409)
		err := workflow.Execute("transfer", g, []byte(`{"amount":30}`))
		return all(refused("workflow", err, "FAILURE"),
			equal("status", query(g).Transaction["status"], "failed"),
			equal("balance", books.balance[g], 0))
	},
	"workflow: an interrupted one is called back": func() error {
		g := gid()
		script(g, "/in", 500)
		err := workflow.Execute("transfer", g, []byte(`{"amount":30}`))
		if err == nil {
			return errors.New("it should have been interrupted")
		}
		code, text := post("resetNextCronTime", `{"gid":"`+g+`"}`)
		return all(equal(text, code, 200), awaitStatus(g, "succeed", 5),
			equal("calls", shown(g), "/out:action /in:action /in:action"))
	},
	"forceStop ends without compensation": func() error {
		g := gid()
		script(g, "/in", 425, 425, 425)
		_ = twoSteps(g).Submit()
		code, text := post("forceStop", `{"gid":"`+g+`"}`)
		again, _ := post("forceStop", `{"gid":"`+g+`"}`)
		return all(equal(text, code, 200), equal("again", again, 409),
			equal("status", query(g).Transaction["status"], "failed"),
			equal("calls", shown(g), "/out:action /in:action"))
	},
	"listing and queries": func() error {
		g := gid()
		err := twoSteps(g).Submit()
		var list struct {
			Transactions []map[string]any
			Next         string `json:"next_position"`
		}
		_, text := get("all?status=succeed&transType=saga&limit=1")
		parsed := json.Unmarshal([]byte(text), &list)
		_, version := get("version")
		none, message := get("query?gid=")
		unknown := query("nobody")
		if len(list.Transactions) != 1 || list.Next == "" || unknown.Transaction != nil {
			return fmt.Errorf("list: %s", text)
		}
		return all(err, parsed, equal("no gid", none, 500),
			equal("message", message, `{"message":"no gid specified"}`),
			equal("version", strings.Contains(version, `"version"`), true),
			equal("branches", len(query(g).Branches), 4))
	},
	"bad requests": func() error {
		errs := []error{}
		for body, wanted := range map[string]int{
			`{`:                                    500,
			`{"gid":"x1","trans_type":"nonsense"}`: 500,
			`{"gid":"x2","trans_type":"saga","steps":[{"action":""}]}`:                  500,
			`{"gid":"x3","trans_type":"saga","custom_data":"{\"orders\":{\"1\":[7]}}"}`: 500,
		} {
			code, text := post("submit", body)
			errs = append(errs, equal(body+" "+text, code, wanted))
		}
		code, text := post("registerBranch", `{"gid":"nobody","trans_type":"tcc"}`)
		code2, _ := post("registerBranch", `{"gid":"nobody","trans_type":"sage"}`)
		return all(append(errs, equal(text, code, 409), equal("kind", code2, 500))...)
	},
}

func registerWorkflows() error {
	workflow.InitHTTP(dtm, busi+"/workflow")
	return workflow.Register("transfer", func(wf *workflow.Workflow, data []byte) error {
		for _, path := range []string{"/out", "/in"} {
			wf.NewBranch().OnRollback(func(bb *dtmcli.BranchBarrier) error {
				_, err := wf.NewRequest().SetBody(data).Post(busi + path + "-back")
				return err
			})
			if _, err := wf.NewRequest().SetBody(data).Post(busi + path); err != nil {
				return err
			}
		}
		return nil
	})
}

func main() {
	dtm = strings.TrimSuffix(os.Getenv("DTM_URL"), "/") + "/api/dtmsvr"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	busi = "http://" + listener.Addr().String()
	go func() { _ = http.Serve(listener, http.HandlerFunc(participant)) }()
	if err := registerWorkflows(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	names := []string{}
	for name := range tests {
		if len(os.Args) < 2 || strings.Contains(name, os.Args[1]) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	if dtmGrpc = os.Getenv("DTM_GRPC"); dtmGrpc != "" {
		later := []string{}
		for name, test := range grpcTests {
			tests[name] = test
			if len(os.Args) < 2 || strings.Contains(name, os.Args[1]) {
				later = append(later, name)
			}
		}
		sort.Strings(later)
		names = append(names, later...)
	}
	failed := 0
	for _, name := range names {
		// dtm's client knows one protocol for workflows at a time.
		if strings.HasPrefix(name, "grpc: ") && busiGrpc == "" {
			if err := startGrpc(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		if err := tests[name](); err != nil {
			failed++
			fmt.Printf("FAIL %s\n     %v\n", name, err)
		} else {
			fmt.Println("ok  ", name)
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(names)-failed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
