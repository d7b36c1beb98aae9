// Lays a module out as a file system proxy has it: `gomod FOLDER VERSION TIME PROXY`.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("gomod: give FOLDER VERSION TIME PROXY")
	}
	if err := lay(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatalf("gomod: %v", err)
	}
}

func lay(folder, version, time, proxy string) error {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	named := module.Version{Path: modfile.ModulePath(text), Version: version}
	there := filepath.Join(proxy, filepath.FromSlash(named.Path), "@v")
	if err := os.MkdirAll(there, 0o755); err != nil {
		return err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", version, time)
	for name, content := range map[string]string{"list": version + "\n", version + ".info": info, version + ".mod": string(text)} {
		if err := os.WriteFile(filepath.Join(there, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(there, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(archive, named, folder); err != nil {
		return err
	}
	return archive.Close()
}
