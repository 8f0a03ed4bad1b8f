// Judges by the NetworkPolicies of a node's pods whether what arrives in a queue of the kernel may pass: the controller of
// kube-network-policies, with a kubeconfig. The rule that fills the queue is node.py's: the controller's own takes nft_queue, which
// not every kernel has.
package main

import (
	"context"
	"flag"
	"fmt"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "")
	node := flag.String("node", "", "")
	queue := flag.Int("queue", 0, "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	known := informers.NewSharedInformerFactory(client, 0)
	// NRI tells the addresses of pods before the API server does; the containerd of the tests has none.
	controller, err := networkpolicy.NewController(
		client,
		known.Networking().V1().NetworkPolicies(),
		known.Core().V1().Namespaces(),
		pods{known.Core().V1().Pods()},
		nil, nil, nil, nil,
		networkpolicy.Config{NodeName: *node, QueueID: *queue, NRIdisabled: true},
	)
	check(err)
	known.Start(ctx.Done())
	check(controller.Run(ctx))
}

func check(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}

// The API server's pods, asked for by address so that an address that is no pod's is an error.
//
// The controller asks NRI about an address for which it is answered without an error and without a pod, and without NRI it crashes
// there: at a connection from outside of the cluster, and at one of a pod that has just begun, whose address the kubelet has not
// told yet. After an error, it takes the address for one of no pod, which no selector of a policy selects.
type pods struct {
	coreinformers.PodInformer
}

func (p pods) Informer() cache.SharedIndexInformer {
	return informer{p.PodInformer.Informer()}
}

type informer struct {
	cache.SharedIndexInformer
}

func (i informer) GetIndexer() cache.Indexer {
	return indexer{i.SharedIndexInformer.GetIndexer()}
}

type indexer struct {
	cache.Indexer
}

func (i indexer) ByIndex(name, address string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, address)
	if err != nil {
		return nil, err
	}
	var running []any
	for _, each := range found {
		// The address of a pod that has ended may be another's by now.
		phase := each.(*corev1.Pod).Status.Phase
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			running = append(running, each)
		}
	}
	if len(running) == 0 {
		return nil, fmt.Errorf("%s is the address of no pod", address)
	}
	return running, nil
}
