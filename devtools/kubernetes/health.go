// What other programs make of an object's status: kstatus (Flux, kpt, Helm), and a health check of Argo CD in its Lua.
//
// Reads {"lua": text, "objects": [object, ...]} from stdin and writes [{"kstatus": status, "argocd": status}, ...].
package main

import (
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type question struct {
	Lua     string                   `json:"lua"`
	Objects []map[string]interface{} `json:"objects"`
}

type answer struct {
	Kstatus string `json:"kstatus"`
	ArgoCD  string `json:"argocd"`
}

func main() {
	var asked question
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	answers := []answer{}
	for _, object := range asked.Objects {
		// Numbers as the API's clients have them: whole ones are int64.
		text, err := json.Marshal(object)
		check(err)
		var parsed unstructured.Unstructured
		check(parsed.UnmarshalJSON(text))
		result, err := status.Compute(&parsed)
		check(err)
		answers = append(answers, answer{result.Status.String(), health(asked.Lua, object)})
	}
	check(json.NewEncoder(os.Stdout).Encode(answers))
}

// As Argo CD does it (util/lua): the object is the global `obj`, the script returns a table with `status` and `message`.
func health(script string, object map[string]interface{}) string {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", value(state, object))
	check(state.DoString(script))
	found, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		check(fmt.Errorf("the script returned no table"))
	}
	if kind := state.GetField(found, "message").Type(); kind != lua.LTString && kind != lua.LTNil {
		check(fmt.Errorf("message is a %s", kind))
	}
	return state.GetField(found, "status").String()
}

func value(state *lua.LState, plain interface{}) lua.LValue {
	switch one := plain.(type) {
	case string:
		return lua.LString(one)
	case float64:
		return lua.LNumber(one)
	case bool:
		return lua.LBool(one)
	case []interface{}:
		table := state.NewTable()
		for _, inner := range one {
			table.Append(value(state, inner))
		}
		return table
	case map[string]interface{}:
		table := state.NewTable()
		for name, inner := range one {
			table.RawSetString(name, value(state, inner))
		}
		return table
	}
	return lua.LNil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
