// Google Cloud Storage on one port of this machine: the objects, their generations and the JSON API are fake-gcs-server's; the
// XML API is ours, as the emulator's own leaves out what object_store asks for. It keeps nothing: a PUT is handed on as an
// upload by the JSON API, whose ifGenerationMatch the emulator decides under its lock. Answers and error codes are as Google
// documents them. Objects are in memory.
//
// The XML API wants a token signed with the key that this program writes into a file, except for buckets named public-*; the
// JSON API wants none. Not there: copies, versions, encryption.
package main

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type server struct {
	emulator *fakestorage.Server
	key      rsa.PublicKey
	lock     sync.Mutex
	uploads  map[string]map[int][]byte
}

type content struct{ Key, LastModified, ETag, Size string }

type prefix struct{ Prefix string }

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Contents              []content
	CommonPrefixes        []prefix
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
}

func main() {
	address, keyFile := os.Args[1], os.Args[2]
	emulator, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, PublicHost: address, Scheme: "http"})
	if err != nil {
		log.Fatal(err)
	}
	key := writeKey(keyFile)
	log.Fatal(http.ListenAndServe(address, &server{emulator: emulator, key: key, uploads: map[string]map[int][]byte{}}))
}

func writeKey(path string) rsa.PublicKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		log.Fatal(err)
	}
	encoded, _ := x509.MarshalPKCS8PrivateKey(key)
	account, _ := json.Marshal(map[string]string{
		"type":           "service_account",
		"client_email":   "writer@project.iam.gserviceaccount.com",
		"private_key_id": "1",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})),
	})
	if err := os.WriteFile(path, account, 0o600); err != nil {
		log.Fatal(err)
	}
	signed := "any.token"
	sum := sha256.Sum256([]byte(signed))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	token := signed + "." + base64.RawURLEncoding.EncodeToString(signature)
	if err := os.WriteFile(path+".token", []byte(token), 0o600); err != nil {
		log.Fatal(err)
	}
	return key.PublicKey
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, ofEmulator := range []string{"/storage/v1/", "/upload/", "/download/", "/_internal/"} {
		if strings.HasPrefix(r.URL.Path, ofEmulator) {
			s.emulator.HTTPHandler().ServeHTTP(w, r)
			return
		}
	}
	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	// object_store sends an empty token with the puts of anonymous clients.
	token := strings.TrimSpace(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer"))
	if token == "" && !strings.HasPrefix(bucket, "public-") {
		refuse(w, 401, "AccessDenied")
	} else if token != "" && !s.signed(token) {
		refuse(w, 401, "AuthenticationRequired")
	} else if _, err := s.emulator.Backend().GetBucket(bucket); err != nil {
		refuse(w, 404, "NoSuchBucket")
	} else if object == "" && r.Method == http.MethodGet {
		s.list(w, bucket, query)
	} else if query.Has("uploads") || query.Has("uploadId") {
		s.upload(w, r, bucket, object, query.Get("uploadId"))
	} else if r.Method == http.MethodPut && r.Header.Get("x-goog-copy-source") == "" {
		if body, err := io.ReadAll(r.Body); err == nil {
			s.put(w, bucket, object, body, r.Header.Get("x-goog-if-generation-match"))
		}
	} else if r.Method == http.MethodPut || r.Method == http.MethodPost {
		refuse(w, 501, "NotImplemented")
	} else if found, err := s.emulator.GetObjectStreaming(bucket, object); err != nil {
		refuse(w, 404, "NoSuchKey")
	} else {
		found.Close()
		s.emulator.HTTPHandler().ServeHTTP(w, r)
	}
}

func (s *server) signed(token string) bool {
	at := max(strings.LastIndex(token, "."), 0)
	signature, _ := base64.RawURLEncoding.DecodeString(token[at+1:])
	sum := sha256.Sum256([]byte(token[:at]))
	return rsa.VerifyPKCS1v15(&s.key, crypto.SHA256, sum[:], signature) == nil
}

func (s *server) put(w http.ResponseWriter, bucket, object string, body []byte, generation string) {
	query := url.Values{"uploadType": {"media"}, "name": {object}}
	if generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	target := "/upload/storage/v1/b/" + bucket + "/o?" + query.Encode()
	answer := httptest.NewRecorder()
	s.emulator.HTTPHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, target, bytes.NewReader(body)))
	if answer.Code == http.StatusPreconditionFailed {
		refuse(w, answer.Code, "PreconditionFailed")
	} else if answer.Code != http.StatusOK {
		refuse(w, answer.Code, "InternalError")
	} else {
		var stored struct{ Etag, Generation string }
		_ = json.Unmarshal(answer.Body.Bytes(), &stored)
		w.Header().Set("ETag", strconv.Quote(stored.Etag))
		w.Header().Set("x-goog-generation", stored.Generation)
	}
}

func (s *server) list(w http.ResponseWriter, bucket string, query url.Values) {
	most, err := strconv.Atoi(query.Get("max-keys"))
	if err != nil || most > 1000 {
		most = 1000
	}
	options := fakestorage.ListOptions{
		Prefix: query.Get("prefix"), Delimiter: query.Get("delimiter"), PageToken: query.Get("continuation-token"), MaxResults: most,
	}
	if after := query.Get("start-after"); after != "" {
		options.StartOffset = after + "\x00"
	}
	found, err := s.emulator.ListObjectsWithOptionsPaginated(bucket, options)
	if err != nil {
		refuse(w, 500, "InternalError")
		return
	}
	page := listing{IsTruncated: found.NextPageToken != "", NextContinuationToken: found.NextPageToken}
	for _, below := range found.Prefixes {
		page.CommonPrefixes = append(page.CommonPrefixes, prefix{below})
	}
	for _, object := range found.Objects {
		updated := object.Updated.UTC().Format("2006-01-02T15:04:05.000Z")
		page.Contents = append(page.Contents, content{object.Name, updated, strconv.Quote(object.Etag), fmt.Sprint(object.Size)})
	}
	answerXML(w, page)
}

// Parts are kept here until they are put as one object.
func (s *server) upload(w http.ResponseWriter, r *http.Request, bucket, object, id string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	parts := s.uploads[id]
	switch {
	case id == "":
		id = rand.Text()
		s.uploads[id] = map[int][]byte{}
		answerXML(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: id})
	case parts == nil:
		refuse(w, 404, "NoSuchUpload")
	case r.Method == http.MethodPut:
		number, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf("%q", strconv.Itoa(number)))
	case r.Method == http.MethodPost:
		var whole []byte
		for number := 1; number <= len(parts); number++ {
			whole = append(whole, parts[number]...)
		}
		stored := httptest.NewRecorder()
		s.put(stored, bucket, object, whole, "")
		delete(s.uploads, id)
		answerXML(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			ETag    string
		}{ETag: stored.Header().Get("ETag")})
	default:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func answerXML(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, code, http.StatusText(status))
}
