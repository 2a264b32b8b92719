// The same coordinator through dtm's gRPC client, with participants that are called by gRPC.
//
//	DTM_URL=http://127.0.0.1:9680 DTM_GRPC=127.0.0.1:9681 go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/dtm-labs/dtm/client/dtmcli"
	"github.com/dtm-labs/dtm/client/dtmgrpc"
	"github.com/dtm-labs/dtm/client/dtmgrpc/dtmgimp"
	"github.com/dtm-labs/dtm/client/dtmgrpc/dtmgpb"
	"github.com/dtm-labs/dtm/client/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var (
	// Where the coordinator's gRPC service is, and the participants'; "" = not tested.
	dtmGrpc, busiGrpc string
	thirty            = wrapperspb.Int64(30)
)

// grpcParticipant answers every method of every service but the registered ones.
func grpcParticipant(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var sent wrapperspb.Int64Value
	if err := stream.RecvMsg(&sent); err != nil {
		return err
	}
	base := dtmgimp.TransBaseFromGrpc(stream.Context())
	path := "/" + method[strings.LastIndexByte(method, '/')+1:]
	md, _ := metadata.FromIncomingContext(stream.Context())
	c := call{path, base.Gid, base.TransType, base.BranchID, base.Op, "gRPC",
		fmt.Sprintf(`{"amount":%d}`, sent.Value), map[string][]string(md)}
	books.Lock()
	defer books.Unlock()
	books.calls = append(books.calls, c)
	if answers := books.scripts[c.gid+c.path]; len(answers) > 0 {
		books.scripts[c.gid+c.path] = answers[1:]
		if code := codes.Code(answers[0]); code != codes.OK {
			return status.Error(code, fmt.Sprintf("said %d, 100%% ü", code))
		}
	}
	settle(c)
	return stream.SendMsg(&emptypb.Empty{})
}

func startGrpc() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	busiGrpc = address + "/busi.Busi"
	server := grpc.NewServer(grpc.UnknownServiceHandler(grpcParticipant))
	workflow.InitGrpc(dtmGrpc, address, server)
	go func() { _ = server.Serve(listener) }()
	return workflow.Register("grpc-transfer", func(wf *workflow.Workflow, data []byte) error {
		for _, path := range []string{"/out", "/in"} {
			send := func(path, op, branch string) error {
				ctx := dtmgimp.TransInfo2Ctx(context.Background(), wf.Gid, "workflow", branch, op, "")
				err := grpcInvoke(ctx, busiGrpc+path)
				return dtmgrpc.GrpcError2DtmError(err)
			}
			_, err := wf.NewBranch().OnRollback(func(bb *dtmcli.BranchBarrier) error {
				return send(path+"-back", "compensate", bb.BranchID)
			}).Do(func(bb *dtmcli.BranchBarrier) ([]byte, error) {
				return []byte("\xff\x00"), send(path, "action", bb.BranchID)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func grpcInvoke(ctx context.Context, url string) error {
	at := strings.IndexByte(url, '/')
	connection := dtmgimp.MustGetGrpcConn(url[:at], false)
	return connection.Invoke(ctx, url[at:], thirty, &emptypb.Empty{})
}

func grpcGid() string { return dtmgrpc.MustGenGid(dtmGrpc) }

func grpcSteps(g string) *dtmgrpc.SagaGrpc {
	s := dtmgrpc.NewSagaGrpc(dtmGrpc, g).
		Add(busiGrpc+"/out", busiGrpc+"/out-back", thirty).
		Add(busiGrpc+"/in", busiGrpc+"/in-back", thirty)
	s.WaitResult = true
	s.RetryInterval = 1
	return s
}

func coded(what string, err error, code codes.Code, words string) error {
	got, _ := status.FromError(err)
	if err == nil || got.Code() != code || !strings.Contains(got.Message(), words) {
		return fmt.Errorf("%s: %v, wanted %s with %q", what, err, code, words)
	}
	return nil
}

const aborted, failedPrecondition, unavailable = 10, 9, 14

var grpcTests = map[string]func() error{
	"grpc: gids differ and have 22 characters": func() error {
		a, b := grpcGid(), grpcGid()
		if a == b {
			return errors.New("the same gid twice")
		}
		return equal("length", len(a), 22)
	},
	"grpc: saga: both steps, in order, with dtm's metadata": func() error {
		g := grpcGid()
		err := grpcSteps(g).Submit()
		calls := books.of(g)
		if len(calls) != 2 {
			return fmt.Errorf("%v; calls: %s", err, shown(g))
		}
		c := calls[0]
		t := query(g).Transaction
		return all(err, equal("calls", shown(g), "/out:action /in:action"),
			equal("parameters", []string{c.kind, c.branch, c.op}, "[saga 01 action]"),
			equal("body", c.body, `{"amount":30}`), equal("status", t["status"], "succeed"),
			equal("protocol", t["protocol"], "grpc"), equal("balance", books.balance[g], 0))
	},
	"grpc: saga: a refused step is rolled back backwards": func() error {
		g := grpcGid()
		script(g, "/in", aborted)
		err := grpcSteps(g).Submit()
		t := query(g).Transaction
		return all(coded("submit", err, codes.Aborted, "FAILURE"), equal("status", t["status"], "failed"),
			equal("calls", shown(g), "/out:action /in:action /in-back:compensate /out-back:compensate"),
			equal("reason", t["rollback_reason"],
				"url:"+busiGrpc+"/in return failed: said 10, 100% ü FAILURE"),
			equal("balance", books.balance[g], 0))
	},
	"grpc: saga: ongoing and other statuses are tried again": func() error {
		g := grpcGid()
		script(g, "/out", failedPrecondition, unavailable)
		err := grpcSteps(g).Submit()
		return all(coded("submit", err, codes.Aborted, "wait result not return success"),
			awaitStatus(g, "succeed", 15),
			equal("calls", shown(g), "/out:action /out:action /out:action /in:action"))
	},
	"grpc: saga: concurrent steps keep their orders": func() error {
		g := grpcGid()
		s := dtmgrpc.NewSagaGrpc(dtmGrpc, g)
		for _, path := range []string{"/a", "/b", "/c"} {
			s.Add(busiGrpc+path, busiGrpc+path+"-back", thirty)
		}
		s.EnableConcurrent().AddBranchOrder(0, []int{1, 2})
		s.WaitResult = true
		err := s.Submit()
		calls := books.of(g)
		if len(calls) != 3 {
			return fmt.Errorf("%v: %s", err, shown(g))
		}
		return all(err, equal("last", calls[2].path, "/a"))
	},
	"grpc: saga: branch headers, steps over HTTP": func() error {
		g := grpcGid()
		s := grpcSteps(g).Add(busi+"/in", busi+"/in-back", thirty)
		s.BranchHeaders = map[string]string{"x-test": "yes"}
		err := s.Submit()
		calls := books.of(g)
		if len(calls) != 3 {
			return fmt.Errorf("%v: %s", err, shown(g))
		}
		return all(err, equal("header", calls[0].header["x-test"], "[yes]"),
			equal("header over HTTP", calls[2].header.Get("X-Test"), "yes"),
			equal("method", calls[2].method, "POST"))
	},
	"grpc: saga: options": func() error {
		g := grpcGid()
		script(g, "/in", unavailable, unavailable, unavailable, unavailable)
		s := grpcSteps(g)
		s.RetryLimit = 2
		s.TimeoutToFail, s.RequestTimeout = 7, 2
		err := s.Submit()
		t := query(g).Transaction
		return all(coded("submit", err, codes.Aborted, "RetryLimit: 2"), awaitStatus(g, "failed", 5),
			equal("options", []any{t["retry_limit"], t["timeout_to_fail"], t["request_timeout"],
				t["retry_interval"], t["wait_result"]}, "[2 7 2 1 true]"))
	},
	"grpc: saga: the same gid again": func() error {
		g := grpcGid()
		first := grpcSteps(g).Submit()
		other := dtmgrpc.NewSagaGrpc(dtmGrpc, g).Add(busiGrpc+"/other", "", thirty)
		return all(first, coded("again", grpcSteps(g).Submit(), codes.Aborted, "FAILURE"),
			coded("other content", other.Submit(), codes.Aborted, "FAILURE"))
	},
	"grpc: msg: prepare and submit": func() error {
		g := grpcGid()
		m := dtmgrpc.NewMsgGrpc(dtmGrpc, g).Add(busiGrpc+"/in", thirty)
		m.WaitResult = true
		err := m.Prepare(busiGrpc + "/query")
		before := query(g).Transaction["status"]
		return all(err, equal("prepared", before, "prepared"), m.Submit(),
			equal("calls", shown(g), "/in:action"))
	},
	"grpc: msg: a failure before the submit aborts": func() error {
		g := grpcGid()
		m := dtmgrpc.NewMsgGrpc(dtmGrpc, g).Add(busiGrpc+"/in", thirty)
		err := m.DoAndSubmit(busiGrpc+"/query", func(*dtmcli.BranchBarrier) error {
			return dtmcli.ErrFailure
		})
		return all(refused("do", err, "FAILURE"), awaitStatus(g, "failed", 5),
			equal("calls", shown(g), ""))
	},
	"grpc: msg: a lost submit is asked for": func() error {
		g := grpcGid()
		script(g, "/query", failedPrecondition)
		m := dtmgrpc.NewMsgGrpc(dtmGrpc, g).Add(busiGrpc+"/in", thirty)
		m.TimeoutToFail, m.RetryInterval = 1, 1
		err := m.Prepare(busiGrpc + "/query")
		return all(err, awaitStatus(g, "succeed", 15),
			equal("calls", shown(g), "/query:msg /query:msg /in:action"))
	},
	"grpc: msg: a lost submit that had failed": func() error {
		g := grpcGid()
		script(g, "/query", aborted)
		m := dtmgrpc.NewMsgGrpc(dtmGrpc, g).Add(busiGrpc+"/in", thirty)
		m.TimeoutToFail = 1
		return all(m.Prepare(busiGrpc+"/query"), awaitStatus(g, "failed", 15),
			equal("calls", shown(g), "/query:msg"))
	},
	"grpc: msg: topics": func() error {
		g, topic := grpcGid(), "topic-"+grpcGid()
		client := dtmgimp.MustGetDtmClient(dtmGrpc)
		ctx := context.Background()
		m := dtmgrpc.NewMsgGrpc(dtmGrpc, g).AddTopic(topic, thirty)
		unknown := coded("unknown topic", m.Submit(), codes.Internal, "topic not found")
		errs := []error{unknown}
		for _, path := range []string{"/one", "/two", "/three"} {
			request := &dtmgpb.DtmTopicRequest{Topic: topic, URL: busiGrpc + path, Remark: "r"}
			_, err := client.Subscribe(ctx, request)
			_, again := client.Subscribe(ctx, request)
			errs = append(errs, err, coded("again", again, codes.Unknown, "this url exists"))
		}
		three := &dtmgpb.DtmTopicRequest{Topic: topic, URL: busiGrpc + "/three"}
		_, err := client.Unsubscribe(ctx, three)
		_, again := client.Unsubscribe(ctx, three)
		m = dtmgrpc.NewMsgGrpc(dtmGrpc, g).AddTopic(topic, thirty)
		m.WaitResult = true
		errs = append(errs, err, coded("again", again, codes.Unknown, "no such an url"), m.Submit())
		calls := books.of(g)
		if len(calls) != 2 {
			return fmt.Errorf("%v: %s", all(errs...), shown(g))
		}
		_, err = client.DeleteTopic(ctx, &dtmgpb.DtmTopicRequest{Topic: topic})
		_, kv := get("queryKV?cat=topics&key=" + url.QueryEscape(topic))
		return all(append(errs, err, equal("first", calls[0].branch, "01-01"),
			equal("second", calls[1].branch, "01-02"), equal("kv", kv, `{"kv":[]}`))...)
	},
	"grpc: tcc: confirmed": func() error {
		g := grpcGid()
		err := dtmgrpc.TccGlobalTransaction(dtmGrpc, g, func(tcc *dtmgrpc.TccGrpc) error {
			return all(tcc.CallBranch(thirty, busiGrpc+"/out", busiGrpc+"/ok", busiGrpc+"/out-back",
				&emptypb.Empty{}),
				tcc.CallBranch(thirty, busiGrpc+"/in", busiGrpc+"/ok", busiGrpc+"/in-back",
					&emptypb.Empty{}))
		})
		return all(err, awaitStatus(g, "succeed", 5),
			equal("calls", shown(g), "/out:try /in:try /ok:confirm /ok:confirm"),
			equal("order", books.of(g)[2].branch, "02"))
	},
	"grpc: tcc: a try that fails is cancelled": func() error {
		g := grpcGid()
		script(g, "/in", aborted)
		err := dtmgrpc.TccGlobalTransaction(dtmGrpc, g, func(tcc *dtmgrpc.TccGrpc) error {
			return all(tcc.CallBranch(thirty, busiGrpc+"/out", busiGrpc+"/ok", busiGrpc+"/out-back",
				&emptypb.Empty{}),
				tcc.CallBranch(thirty, busiGrpc+"/in", busiGrpc+"/ok", busiGrpc+"/in-back",
					&emptypb.Empty{}))
		})
		return all(refused("tcc", err, "Aborted"), awaitStatus(g, "failed", 5),
			equal("calls", shown(g), "/out:try /in:try /in-back:cancel /out-back:cancel"),
			equal("balance", books.balance[g], 0))
	},
	"grpc: xa: committed": func() error {
		g := grpcGid()
		client, ctx := dtmgimp.MustGetDtmClient(dtmGrpc), context.Background()
		request := &dtmgpb.DtmRequest{Gid: g, TransType: "xa",
			TransOptions: &dtmgpb.DtmTransOptions{WaitResult: true}}
		branch := &dtmgpb.DtmBranchRequest{Gid: g, TransType: "xa", BranchID: "01",
			Data: map[string]string{"url": busiGrpc + "/xa"}}
		_, a := client.Prepare(ctx, request)
		_, b := client.RegisterBranch(ctx, branch)
		_, c := client.Submit(ctx, request)
		_, late := client.RegisterBranch(ctx, branch)
		return all(a, b, c, coded("late", late, codes.Aborted, "no trans with gid"),
			equal("calls", shown(g), "/xa:commit"))
	},
	"grpc: workflow: done": func() error {
		g := grpcGid()
		err := workflow.Execute("grpc-transfer", g, []byte("x"))
		return all(err, equal("status", query(g).Transaction["status"], "succeed"),
			equal("calls", shown(g), "/out:action /in:action"),
			// Once more: the kept results are enough.
			workflow.Execute("grpc-transfer", g, []byte("x")),
			equal("calls", shown(g), "/out:action /in:action"))
	},
	"grpc: workflow: rolled back": func() error {
		g := grpcGid()
		script(g, "/in", aborted)
		err := workflow.Execute("grpc-transfer", g, []byte("x"))
		return all(refused("workflow", err, "FAILURE"),
			equal("status", query(g).Transaction["status"], "failed"),
			equal("balance", books.balance[g], 0))
	},
	"grpc: workflow: an interrupted one is called back": func() error {
		g := grpcGid()
		script(g, "/in", unavailable)
		if err := workflow.Execute("grpc-transfer", g, []byte("x")); err == nil {
			return errors.New("it should have been interrupted")
		}
		code, text := post("resetNextCronTime", `{"gid":"`+g+`"}`)
		return all(equal(text, code, 200), awaitStatus(g, "succeed", 15),
			equal("calls", shown(g), "/out:action /in:action /in:action"))
	},
	"grpc: bad requests": func() error {
		client, ctx := dtmgimp.MustGetDtmClient(dtmGrpc), context.Background()
		errs := []error{}
		for _, bad := range []struct {
			request *dtmgpb.DtmRequest
			code    codes.Code
			words   string
		}{
			{&dtmgpb.DtmRequest{Gid: "gx1", TransType: "nonsense"}, codes.Internal, ""},
			{&dtmgpb.DtmRequest{Gid: "gx2", TransType: "saga", Steps: `[{"action":""}]`}, codes.Internal,
				""},
			{&dtmgpb.DtmRequest{Gid: "gx3", TransType: "saga", Steps: "{"}, codes.Internal, ""},
					} {
			_, err := client.Submit(ctx, bad.request)
			errs = append(errs, coded(bad.request.String(), err, bad.code, bad.words))
		}
		_, nobody := client.RegisterBranch(ctx, &dtmgpb.DtmBranchRequest{Gid: "nobody", TransType: "tcc"})
		_, kind := client.RegisterBranch(ctx, &dtmgpb.DtmBranchRequest{Gid: "nobody", TransType: "sage"})
		_, abort := client.Abort(ctx, &dtmgpb.DtmRequest{Gid: "nobody", TransType: "tcc"})
		method := dtmgimp.MustGetGrpcConn(dtmGrpc, false).Invoke(ctx, "/dtmgimp.Dtm/Nothing",
			&emptypb.Empty{}, &emptypb.Empty{})
		return all(append(errs, coded("nobody", nobody, codes.Aborted, "no trans with gid"),
			coded("kind", kind, codes.Unknown, "unknow trans type: sage"),
			coded("abort", abort, codes.Internal, ""),
			coded("method", method, codes.Unimplemented, ""))...)
	},
	"grpc: what is compressed is refused with a status": func() error {
		connection, err := grpc.Dial(dtmGrpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
		if err != nil {
			return err
		}
		defer connection.Close()
		_, err = dtmgpb.NewDtmClient(connection).NewGid(context.Background(), &emptypb.Empty{})
		return coded("compressed", err, codes.Unimplemented, "")
	},
}
